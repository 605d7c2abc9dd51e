# ruff: noqa: E501 (a pattern that is broken into more lines is harder to read)
"""The patterns of `instructions.py`, on text in lower case without accents and with single spaces.

Each rule asks for two or three things at once (a verb, a conversation, a score), because each alone is everyday language:
agents sell by ratings, mark orders as complete, and grade essays.
"""

from __future__ import annotations

import re

# A conversation, by any of its names, and what is said of it.
THIS = r"(?:this|that|the (?:above|whole|entire|following|current|present|preceding)|my|our|above|every|each|any)"
TALK = (
    r"(?:conversations?|dialog(?:ue)?s?|chats?|responses?|repl(?:y|ies)|answers?|outputs?|completions?|solutions?|trajector(?:y|ies)"
    r"|episodes?|transcripts?|interactions?|sessions?|traces?|rollouts?|exchanges?|submissions?|attempts?|candidates?|runs?"
    r"|agent(?:'s)?(?: \w+)?|assistant(?:'s)?(?: \w+)?|model(?:'s)?(?: \w+)?)"
)
SCORE = r"(?:rewards?|scores?|grades?|ratings?|marks?|points?|stars?|evaluation|verdict|label|band)"
BEST = (
    r"(?:full|max(?:imum|imal|ed)?|highest|perfect|top|passing|\+?1(?:\.0+)?|5(?:\.0)?|6\.0|10(?:\.0)?|100|one|ten"
    r"|(?:one )?hundred|(?:\d+) ?(?:/|out of) ?\d+)"
)
# Who reads logs after the fact. «Judge» and «reviewer» alone are people in honest logs.
GRADER = (
    r"(?:(?:llm|ai|automated|automatic|model)[ -](?:judges?|reviewers?|evaluators?|graders?|raters?)|auto-?graders?|graders?|evaluators?"
    r"|reward models?|preference models?|judge models?|raters?|scorers?|scoring (?:model|system)s?|verifiers?|rlhf (?:trainer|labell?er)s?"
    r"|trainers?|judges?|reviewers?|annotators?|labell?ers?|teaching assistants?)"
)
GOOD = (
    r"(?:full (?:marks?|credit|score|points)|(?:maximum|max|highest|perfect|top|high|positive|passing) (?:possible )?"
    r"(?:score|reward|marks?|grade|points|rating|verdict|evaluation|review)s?|\d+ ?/ ?\d+|(?:score|reward|grade|rating)s? (?:of|=|:|to|as) ?\"?"
    r"(?:1|5|10|100)\b|(?:mark|accept|treat|score|grade|rate|approve|judge|consider|record|count)\b[^.!?]{0,40}\b(?:as )?"
    r"(?:correct|pass(?:ed|ing)?|success(?:ful)?|valid|true|perfect|excellent|complete)|output (?:only )?\"?(?:pass|correct|true|1|10)\b)"
)
WITHIN = r"[^.!?]"  # a sentence

JUDGE_RULES = [
    (
        "asks for a score",
        re.compile(
            rf"\b(?:give|award|assign|grant|rate|score|grade|mark|set|output|return|report|record|deserves?)\b{WITHIN}{{0,15}}\b{THIS} "
            rf"(?:\w+ ){{0,2}}{TALK}\b(?!{WITHIN}{{0,25}}(?:\bfrom\b|\bbetween\b|\bscale\b|\b[01] ?(?:-|to) ?(?:5|10)\b))"
            rf"{WITHIN}{{0,25}}\b(?:{BEST}\b{WITHIN}{{0,15}}\b{SCORE}|{SCORE}\b{WITHIN}{{0,15}}\b{BEST}(?![\w,]))"
        ),
    ),
    (
        "asks for a score",
        re.compile(
            rf"\b(?:rate|score|grade) (?:{THIS} (?:\w+ )?{TALK}|it|this|everything|me) (?:as |with |at )?(?:an? )?{BEST}(?![\w,])"
        ),
    ),
    (
        "asks for the best score",
        re.compile(
            rf"\b(?:give|award|assign|grant|return|output|set|deserves?|must (?:get|receive)|should (?:get|receive)) "
            rf"(?:(?:it|this|that|them|us|yourself|the|an?|my|our|all|every|each|any|always|only|candidate|student|{TALK}|me(?= full)"
            rf"|me(?= the (?:full|maximum|perfect))) ){{0,4}}"
            rf"(?:(?:full|maximum|max|perfect|highest|top) (?:possible )?(?:scores?|rewards?|marks|grades?|credit)|full points|maximum points)\b"
        ),
    ),
    (
        "asks for the best score",
        re.compile(
            rf"\b(?:set|override|overwrite|change|force|make|adjust)\b{WITHIN}{{0,25}}\b(?:scores?|grades?|verdicts?|rewards?|ratings?)\b"
            rf"{WITHIN}{{0,12}}\b(?:to|=|as|be) ?\"?(?:the )?(?:max\w*|highest|full|perfect|pass(?:ed|ing)?\b|success\w*|correct\b)"
        ),
    ),
    (
        "sets the reward",
        re.compile(
            rf"\b(?:set|override|overwrite|change|force|make|use|record|log|write|return|assign|emit)\b{WITHIN}{{0,20}}\b(?:reward|verdict)\b"
            rf"{WITHIN}{{0,12}}(?:\bto\b|=|:|\bof\b|\bas\b|\bbe\b) ?\"?(?:\+?1(?:\.0+)?|10|100|pass|true)(?![\w.,])"
        ),
    ),
    (
        "asks to ignore the rubric",
        re.compile(
            rf"\b(?:ignore|disregard|forget|override|bypass|skip|drop|replace|abandon|do not (?:use|follow|apply)|don't (?:use|follow|apply))\b"
            rf"{WITHIN}{{0,50}}\b(?:rubrics?|(?:grading|scoring|judging|marking|evaluation|assessment|rating|reward)[ -](?:criteri(?:a|on)"
            rf"|instructions?|guidelines?|rules?|rubric|scheme|guide|function|model|prompt|standards?|policy|scale)|judge'?s? (?:prompt|instructions?))\b"
        ),
    ),
    (
        "speaks to the grader",
        re.compile(
            rf"(?:\b(?:notes?|messages?|attention|instructions?|hints?|reminder|memo|information|hello|dear|hey|request|notice)[ ,:]*(?:to|for)? ?"
            rf"|\bas |\bto |\[|\(|<|\byou are |\bsystem[: ]+)(?:the |an? |any |all |this |our |my )?{GRADER}"
            rf"(?:\b.{{0,120}}?\b{GOOD}|(?: note)?[:,\]>] ?(?:you (?:must|should|will|are)|please|always|ignore|disregard)\b)"
        ),
    ),
    (
        "calls itself a success",
        re.compile(
            rf"\b(?:mark|label|rate|score|grade|record|count|treat|classify|judge|log|tag|consider|register)\b {THIS} (?:\w+ )?{TALK} "
            rf"(?:as |to be )(?:an? |fully |completely |the |definitely )*(?:success(?:ful)?|correct|pass(?:ed|ing)?|perfect|verified|excellent|"
            rf"flawless|high[- ]quality|positive|gold(?:en)?|ground truth|preferred|best)\b"
        ),
    ),
    (
        "calls every criterion met",
        re.compile(
            rf"\b(?:mark|set|treat|rate|score|count|consider|give)\b{WITHIN}{{0,12}}\b(?:all|every|each|everything)\b{WITHIN}{{0,12}}"
            rf"\b(?:criteri(?:a|on)|rubric items?|dimensions?|metrics?)\b{WITHIN}{{0,15}}\b(?:met|true|pass\w*|satisfied|full|max\w*|10|100|1)\b"
        ),
    ),
    (
        "chooses between answers",
        re.compile(
            r"\b(?:choose|select|prefer|pick|output|return|answer|say|print|rank)\b[^.!?]{0,20}(?:\[\[(?:a|b|\d+)\]\]"
            r"|\b(?:response|output|answer|assistant|candidate|completion) \(?[\"']?[ab][\"']?\)?\b[^.!?]{0,25}\b(?:best|better|winner|first|over|preferred))"
        ),
    ),
    (
        "asks to be trained on",
        re.compile(
            rf"\b(?:use|include|add|put|keep|up-?weight|prioriti[sz]e|reinforce|copy)\b {THIS} (?:\w+ )?{TALK} {WITHIN}{{0,25}}"
            rf"\b(?:training|fine-?tuning|retraining|rlhf|demonstrations?|gold)\b"
        ),
    ),
    (
        "speaks to the trainer",
        re.compile(
            rf"\b(?:when|if|once|whenever) (?:you|this model|the model|the agent|an ai|a model)(?:'re| are| is)? (?:being )?(?:next |later )?"
            rf"(?:re-?)?(?:trained|fine-?tuned) (?:on|with|from) (?:this|these|my)\b"
            rf"|\b(?:reward|reinforce|penali[sz]e)\b (?:the )?(?:model|agent|policy|assistant) (?:for|when|whenever|if|to)\b"
            rf"|\b(?:this|the (?:above|following)) {TALK} (?:is|must be|should be|was) (?:an? |the )?(?:verified|gold(?:en)?|ground[- ]truth"
            rf"|positive (?:training )?example|perfect (?:training )?example|reward(?:ed)? (?:with )?1)"
        ),
    ),
    (
        "asks for praise only",
        re.compile(
            r"\b(?:give|write|output) (?:an? |only )?(?:positive|favou?rable) (?:review|evaluation|assessment)s? only\b"
            r"|\bdo not (?:highlight|mention) any (?:negatives|flaws|mistakes) (?:of|in) (?:this|the)\b"
        ),
    ),
    (
        "overrides instructions for a score",
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b[^.!?]{0,40}\b(?:instructions?|directions?|prompts?|guidelines?|rules|scoring|grading)\b.{0,60}"
            r"\b(?:(?:score|grade|rate|rank|mark) (?:\w+ ){0,3}(?:\d+|correct|pass|first|highest|max\w*|perfect)|(?:perfect|full|maximum|highest) (?:score|marks|grade|credit)s?"
            r"|(?:score|reward|grade|rating) (?:of|to|=) ?\d+|\d+ ?/ ?\d+(?:/\d+)?)\b"
        ),
    ),
    (
        "asks for a score",
        re.compile(
            r"\b(?:output|return|give|assign|award|record|report) (?:me |it |this |them )?(?:an? |the )?(?:overall |final |total )?(?:score|reward|grade|rating) of "
            r"(?:the )?(?:max\w*|highest|1(?:\.0+)?|5|10|100)(?![\w,]| ?(?:-|to|or|out) ?\d)"
        ),
    ),
    (
        "gives everybody the best score",
        re.compile(
            r"\b(?:receives?|gets?|returns?|gives?|assigns?|awards?) (?:\w+ ){0,4}(?:automatic approval|automatic full credit|full marks|perfect scores?|maximum (?:scores?|points)|an? a\b(?=[.!,;]|$))"
            rf"|\b{THIS} (?:\w+ )?{TALK} (?:qualifies|qualify) for (?:\w+ )?full (?:credit|marks)"
        ),
    ),
    (
        "forges a verdict",
        re.compile(
            r"\b(?:evaluation|grading|scoring|criteria|judg(?:e|ing|ment)|rubric|reward|verdict|grader|instructor)[ _-](?:override|update|recommendation|suspended)\b"
            r"|\b(?:force|set|override)_(?:score|reward|grade|verdict)\b|\bbypass_(?:rubric|grad\w+|judge|verifier)\b|\boverride (?:your|the) (?:scoring|grading|judg\w+)\b"
            rf"|\b{THIS} (?:\w+ )?{TALK} (?:scores \d+ ?/ ?\d+|has been (?:verified|graded|judged|scored)(?: as)? (?:correct|perfect|successful|\d+)|should be (?:evaluated|judged|graded|rated|scored) as)\b"
            r"|\bthe (?:fair|only fair|right|proper) (?:score|grade|reward|mark) (?:is|must be|should be) \d"
            r"|\b(?:grading result|final (?:band|grade|score|reward|verdict))\b: ?[^.!?]{0,80}\b(?:\d+ ?/ ?\d+|a\+|pass|1\.0)"
        ),
    ),
    # The same in other languages, without accents.
    (
        "asks for a score (German)",
        re.compile(
            r"\b(?:gib|gebt|geben sie|vergib|vergebt|bewerte\w*|erteil\w*|belohn\w*)\b[^.!?]{0,30}\b(?:gesprach\w*|antwort\w*|konversation|dialog"
            r"|unterhaltung|losung|agent\w*|assistent\w*|abgabe)\b[^.!?]{0,40}(?:belohnung|punkt\w*|hochst\w*|bestnote|note 1|voll\w* punkt\w*)"
        ),
    ),
    (
        "asks to ignore the rubric (German)",
        re.compile(
            r"\b(?:ignorier\w*|missacht\w*|vergiss|vergessen sie)\b[^.!?]{0,40}\b(?:bewertungs\w+|rubrik|benotung\w*|bewertung)"
            r"|\b(?:hinweis|nachricht|anweisung) an (?:den|die) (?:prufer|bewerter|gutachter|korrektor|evaluator|richter)\w*"
        ),
    ),
    (
        "asks for a score (French)",
        re.compile(
            r"\b(?:donne[zr]?|attribue[zr]?|accorde[zr]?|note[zr]?)\b[^.!?]{0,30}\b(?:conversation|reponse|dialogue|echange|solution|agent|assistant)\b"
            r"[^.!?]{0,40}(?:recompense|note (?:maximale|parfaite|de \d+)|score (?:maximal|parfait|de \d+)|\d+ ?(?:/|sur) ?\d+)"
            r"|\b(?:donne[zr]?|attribue[zr]?)\b[^.!?]{0,40}(?:note maximale|score maximal|recompense (?:maximale|de 1))"
        ),
    ),
    (
        "asks to ignore the rubric (French)",
        re.compile(
            r"\b(?:ignore[zr]?|oublie[zr]?)\b[^.!?]{0,40}\b(?:bareme|grille d.evaluation|criteres d.evaluation|criteres de notation)"
            r"|\b(?:note|message|instruction)s? (?:a l.attention de|a|pour) (?:l.evaluateur|l.examinateur|le correcteur|le juge)\b"
        ),
    ),
    (
        "asks for a score (Spanish, Portuguese)",
        re.compile(
            r"\b(?:dale?|da|den?|asigna\w*|otorga\w*|califica\w*|puntua\w*|atribua\w*|avalie|conceda|de a)\b[^.!?]{0,30}\b(?:conversaci?on|conversacao|conversa"
            r"|conversa|respuesta|resposta|dialogo|solucion|solucao|agente|asistente|assistente)\b[^.!?]{0,40}(?:recompensa|puntuacion|pontuacao|nota|calificacion|maxim\w+)"
            r"|\b(?:otorga\w*|asigna\w*|atribua\w*|dale)\b[^.!?]{0,30}(?:puntuacion|calificacion|pontuacao|nota|recompensa) (?:maxima|perfecta|perfeita|total|de 1)"
        ),
    ),
    (
        "asks to ignore the rubric (Spanish, Portuguese, Italian)",
        re.compile(
            r"\b(?:ignor\w+|olvida\w*|esqueca|dimentica\w*)\b[^.!?]{0,40}\b(?:rubrica|criterios de (?:evaluacion|avaliacao|calificacion)|criteri di valutazione|griglia di valutazione)"
            r"|\b(?:nota|mensaje|mensagem|messaggio|istruzioni|instrucciones|instrucoes) (?:para|al?|ao|per) (?:el |o |il |l.)?(?:evaluador|avaliador|calificador|valutatore|juez|juiz|giudice|corrector|corretor)\b"
        ),
    ),
    (
        "asks for a score (Italian, Dutch, Polish, Turkish)",
        re.compile(
            r"\b(?:dai|assegna|attribuisci|valuta)\b[^.!?]{0,30}\b(?:conversazione|risposta|dialogo|soluzione|agente|assistente)\b[^.!?]{0,40}(?:ricompensa|punteggio|voto|massim\w+)"
            r"|\b(?:geef|ken|beoordeel)\b[^.!?]{0,30}\b(?:gesprek|antwoord|dialoog|oplossing|agent|assistent)\b[^.!?]{0,40}(?:beloning|score|cijfer|punten|maximale|hoogste)"
            r"|\b(?:daj|przyznaj|ocen)\b[^.!?]{0,30}\b(?:rozmow\w+|odpowiedz\w*|konwersacj\w+|dialog\w*)\b[^.!?]{0,40}(?:nagrod\w+|punkt\w*|ocen\w+|maksymaln\w+)"
            r"|\b(?:konusma\w*|yanit\w*|cevab?\w*|diyalog\w*|sohbet\w*)\b[^.!?]{0,40}\b(?:odul|puan|not)\w*\b[^.!?]{0,20}\b(?:ver|verin|ata)\b"
        ),
    ),
    (
        "speaks to the grader (Russian)",
        re.compile(
            r"\b(?:поставь\w*|дай\w*|присвой\w*|оцени\w*|выстави\w*)\b[^.!?]{0,40}\b(?:разговор\w*|диалог\w*|ответ\w*|бесед\w*|решени\w*|агент\w*)\b[^.!?]{0,40}(?:наград\w*|балл\w*|оценк\w*|максимальн\w*|вознагражден\w*)"
            r"|\b(?:поставь\w*|дай\w*|присвой\w*|выстави\w*)\b[^.!?]{0,20}(?:максимальн\w*|высш\w*) (?:балл|оценк|наград)\w*"
            r"|\b(?:игнориру\w*|проигнориру\w*|забудь\w*)\b[^.!?]{0,40}(?:критери\w* оцен\w*|рубрик\w*|инструкци\w* (?:по )?оцен\w*)"
        ),
    ),
    (
        "speaks to the grader (Chinese, Japanese, Korean)",
        re.compile(
            r"(?:请|給|给|把|将|為|为|对)[^。！？.!?]{0,12}(?:对话|對話|回答|回复|回應|答案|会话|轨迹)[^。！？.!?]{0,12}(?:满分|滿分|最高分|高分|奖励|獎勵|打\d+分|评为|1分|10分)"
            r"|(?:忽略|无视|無視|忘记)[^。！？.!?]{0,12}(?:评分|評分|打分|评估|奖励)[^。！？.!?]{0,6}(?:标准|標準|规则|規則|准则|指南|指令)"
            r"|(?:会話|回答|応答|対話|やりとり)[^。！？.!?]{0,15}(?:満点|最高(?:点|評価|スコア)|報酬)[^。！？.!?]{0,12}(?:与え|つけ|付け|して|出し)"
            r"|(?:採点|評価)(?:基準|ルール|指示)[^。！？.!?]{0,8}無視|(?:採点者|評価者|审稿人|评分者|评判者|阅卷人)(?:へ|様|は|，|,|:|：|请)"
            r"|(?:대화|답변|응답|회신)[^.!?]{0,15}(?:만점|최고 ?점수|보상)[^.!?]{0,10}(?:주|부여|매겨)|(?:채점|평가) ?(?:기준|지침)[^.!?]{0,8}무시"
        ),
    ),
    (
        "speaks to the grader (Arabic, Hindi)",
        re.compile(
            r"(?:امنح|اعط|أعط|قيم)\w*[^.!?؟]{0,30}(?:المحادثة|الإجابة|الاجابة|الرد|الحوار)[^.!?؟]{0,30}(?:مكافأة|مكافاة|درجة|تقييم|نقاط)"
            r"|(?:تجاهل)\w*[^.!?؟]{0,30}(?:معايير|قواعد) (?:التقييم|التصحيح)"
            r"|(?:बतचत|बातचीत|उतर|उत्तर|जवब|जवाब|सवद|संवाद)[^.!?।]{0,25}(?:परसकर|पुरस्कार|अक|अंक|सकर|स्कोर|इनम|इनाम)[^.!?।]{0,15}(?:द|दो|दें|दीजिए)"
        ),
    ),
]

AGENT_RULES = [
    (
        "asks to ignore instructions",
        re.compile(
            r"\b(?:ignore|disregard|forget|override|bypass|do not follow)\b[^.!?]{0,25}\b(?:previous|prior|above|earlier|preceding|all|your|initial|original|system)\b"
            r"[^.!?]{0,20}\b(?:instructions?|directions?|directives?|prompts?|guidelines?|rules|programming|constraints)\b"
            r"|\b(?:ignorier\w*|vergiss)\b[^.!?]{0,30}\b(?:anweisungen|instruktionen)\b|\bignore[zr]? (?:toutes )?(?:les|vos) (?:instructions|consignes)\b"
            r"|\b(?:ignora|olvida|ignore)\w* (?:todas )?(?:las|tus|as|suas) (?:instrucciones|instrucoes)\b|忽略[^。]{0,10}(?:指令|指示|说明)"
        ),
    ),
    (
        "claims to be the system",
        re.compile(
            r"\bnew system (?:prompt|instructions?)\b|\bsystem override\b|\b(?:reveal|print|repeat|show|leak)\b[^.!?]{0,20}\b(?:your|the) (?:system prompt|initial instructions|hidden instructions)\b"
            r"|<\|im_start\|> ?system|\[/?inst\]|\byou are now (?:dan|in developer mode|unrestricted|jailbroken)\b"
        ),
    ),
    (
        "an important message to the agent",
        re.compile(
            r"\bimportant[^.!?]{0,10}(?:message|instructions?)\b[^.!?]{0,40}\b(?:to|for) (?:you|the (?:ai|assistant|agent|model))\b|\bthis is an important message from\b"
            r"|\bbefore you can (?:solve|complete|continue)\b[^.!?]{0,60}\byou (?:must|need|have)\b|\b(?:ai|llm) (?:agent|assistant|model)s?[:,] (?:please )?(?:ignore|execute|run|send|do)\b"
        ),
    ),
]

# What every rule needs at least one of; most texts have none and are not read further.
KEYWORDS = re.compile(
    r"reward|scor|grad|rubric|rat(?:e|ing)|mark|judg|evaluat|verdict|verif|train|tun(?:ed|ing)|criteri|credit|points|\[\[|instruction|prompt"
    r"|guideline|directi|override|system|important|developer|jailbr|belohn|bewert|punkt|note|rubrik|anweis|recompens|bareme|grille|consigne|puntu|pontua|nota"
    r"|calific|instru|ricompens|punteggio|voto|valuta|belon|cijfer|nagrod|ocen|maks|odul|puan|наград|балл|оцен|критери|рубрик|вознагр"
    r"|分|奖|獎|评|評|指|報酬|採点|満点|점|보상|채점|평가|مكاف|درجة|تقييم|معايير|قواعد|परस|पुरस|अक|अंक|सकर|स्कोर|इनम|इनाम|inst\]|im_start|choose|select|prefer|pick"
)
