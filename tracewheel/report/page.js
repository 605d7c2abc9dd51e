"use strict";
// Text of a policy is always set as text, never as markup.
(() => {
  const get = (id) => document.getElementById(id);
  const root = document.documentElement;
  const theme = get("theme");
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
  nameTheme();

  const body = get("viewer-body");
  if (!body) return;
  const data = JSON.parse(get("viewer-data").textContent);
  body.hidden = false;

  const OUTCOMES = {
    gained: "Gained: solved only after", lost: "Lost: solved only before", failed: "Failed by both",
    solved: "Solved by both", unscored: "Unscored for one of them",
  };
  const words = (name) => String(name).replaceAll("_", " ");
  const element = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const fill = (select, pairs, chosen) => {
    select.replaceChildren(...pairs.map(([value, label]) => {
      const option = element("option", "", label);
      option.value = value;
      return option;
    }));
    if (pairs.some(([value]) => value === chosen)) select.value = chosen;
  };
  const values = (field) => [...new Set(data.tasks.map((task) => task[field]))];

  fill(get("outcome"), [["", "all"], ...Object.entries(OUTCOMES).filter(([key]) => values("outcome").includes(key))], "");
  fill(get("tier"), [["", "all"], ...values("tier").sort((a, b) => a - b).map((tier) => [String(tier), String(tier)])], "");
  fill(get("family"), [["", "all"], ...values("family").sort().map((family) => [family, family])], "");
  const policies = Object.entries(data.policies);
  fill(get("left"), policies, data.before);
  fill(get("right"), policies, data.after);

  const shown = () => data.tasks.filter((task) =>
    (!get("outcome").value || task.outcome === get("outcome").value) &&
    (!get("tier").value || String(task.tier) === get("tier").value) &&
    (!get("family").value || task.family === get("family").value));

  const describeCall = (call) => {
    const code = element("code", "call");
    const called = (call && call.function) || {};
    let args = called.arguments;
    if (typeof args === "string") { try { args = JSON.parse(args); } catch { /* not JSON: shown as it is */ } }
    code.append(element("b", "", called.name || "?"));
    if (args && typeof args === "object" && !Array.isArray(args)) {
      const pairs = Object.entries(args).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
      code.append(`(${pairs.join(", ")})`);
    } else code.append(`(${args === undefined ? "" : String(args)})`);
    return code;
  };

  const opening = (messages) => {
    const first = messages.findIndex((message) => message.role === "assistant");
    return first < 0 ? messages.length : first;
  };
  const assistantTurns = (episode) => episode ? episode.messages.filter((message) => message.role === "assistant") : [];
  const contents = (message) => JSON.stringify([message.content || "", (message.tool_calls || []).map((call) => call.function)]);

  const firstDifference = (left, right) => {
    const [one, two] = [assistantTurns(left).map(contents), assistantTurns(right).map(contents)];
    for (let turn = 0; turn < Math.max(one.length, two.length); turn += 1) if (one[turn] !== two[turn]) return turn;
    return -1;
  };

  const showScore = (place, episode) => {
    place.replaceChildren();
    if (!episode) { place.append(element("span", "chip", "no episode")); return; }
    const mark = (value) => value >= 1 ? " full" : value <= 0 ? " zero-mark" : "";
    if (episode.total === null) place.append(element("span", "chip main", words(episode.status)));
    else place.append(element("span", `chip main${mark(episode.total)}`, `reward ${Number(episode.total.toFixed(3))}`));
    for (const [name, value] of Object.entries(episode.breakdown)) {
      if (name === "success" || !name.includes(".") && name !== "malformed_penalty") continue;
      const part = words(name.includes(".") ? name.slice(name.indexOf(".") + 1) : name);
      const sign = value >= 1 ? " ✓" : value <= 0 ? " ✕" : ` ${Number(value.toFixed(3))}`;
      place.append(element("span", `chip${name === "malformed_penalty" ? "" : mark(value)}`, part + sign));
    }
    place.append(element("span", "chip", `ended: ${words(episode.stop_reason)}`));
    place.append(element("span", "chip", `${assistantTurns(episode).length} turns`));
    if (episode.detail) place.append(element("span", "chip", episode.detail));
  };

  const showTurns = (place, episode, differs) => {
    place.replaceChildren();
    if (!episode) return;
    let turn = -1;
    for (const message of episode.messages.slice(opening(episode.messages))) {
      const item = element("li", ["assistant", "tool", "user"].includes(message.role) ? message.role : "system");
      const content = typeof message.content === "string" ? message.content : message.content ? JSON.stringify(message.content) : "";
      const calls = message.tool_calls || [];
      if (message.role === "assistant") {
        turn += 1;
        const malformed = !calls.length && content.includes("<tool_call>");
        if (malformed) item.classList.add("trouble");
        if (turn === differs) item.classList.add("differs");
        const tag = `turn ${turn + 1}${malformed ? ": malformed call" : ""}${turn === differs ? ": first difference" : ""}`;
        item.append(element("span", "tag", tag));
      } else {
        const trouble = /^error\b/i.test(content);
        if (trouble) item.classList.add("trouble");
        item.append(element("span", "tag", message.role === "tool" ? "observation" : message.role));
      }
      if (content) item.append(element("span", "text", content));
      calls.forEach((call) => item.append(describeCall(call)));
      place.append(item);
    }
    const details = element("details");
    details.append(element("summary", "", "Final state of the environment"), element("pre", "", episode.final_state));
    const last = element("li", "system");
    last.append(details);
    place.append(last);
  };

  const show = () => {
    const tasks = shown();
    const index = tasks.findIndex((task) => task.task_id === get("task").value);
    const task = tasks[index];
    get("position").textContent = tasks.length ? `${index + 1} of ${tasks.length}` : "none";
    get("previous").disabled = index <= 0;
    get("next").disabled = index < 0 || index >= tasks.length - 1;
    const [left, right] = task ? [task.episodes[get("left").value], task.episodes[get("right").value]] : [];
    get("prompt").textContent = task ? task.prompt : "No task has this outcome, tier and family.";
    get("about").textContent = task ? `${words(task.split)} · tier ${task.tier} · ${task.family} · ${task.task_id}` : "";
    get("initial").textContent = task ? task.initial_state : "";
    const known = left || right;
    get("system").textContent = known ? known.messages.slice(0, opening(known.messages))
      .map((message) => `${message.role}: ${message.content}`).join("\n\n") : "";
    const differs = left && right ? firstDifference(left, right) : -1;
    for (const [side, episode] of [["left", left], ["right", right]]) {
      showScore(get(`${side}-score`), task ? episode : undefined);
      showTurns(get(`${side}-turns`), episode, differs);
    }
  };

  const list = () => {
    const kept = get("task").value;
    const tasks = shown();
    fill(get("task"), tasks.map((task) => [task.task_id, `${task.outcome} · tier ${task.tier} · ${task.prompt}`]), kept);
    show();
  };
  const move = (step) => {
    const tasks = shown();
    const index = tasks.findIndex((task) => task.task_id === get("task").value) + step;
    if (tasks[index]) { get("task").value = tasks[index].task_id; show(); }
  };
  for (const id of ["outcome", "tier", "family"]) get(id).addEventListener("change", list);
  for (const id of ["task", "left", "right"]) get(id).addEventListener("change", show);
  get("previous").addEventListener("click", () => move(-1));
  get("next").addEventListener("click", () => move(1));
  // A link to a task, #task=<id>, shows it as the gate compared it.
  const follow = () => {
    if (!location.hash.startsWith("#task=")) return;
    const wanted = decodeURIComponent(location.hash.slice("#task=".length));
    if (!data.tasks.some((task) => task.task_id === wanted)) return;
    for (const id of ["outcome", "tier", "family"]) get(id).value = "";
    list();
    get("task").value = wanted;
    if (data.baseline in data.policies) get("left").value = data.baseline;
    get("right").value = data.after;
    show();
    get("viewer").scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  list();
  follow();
})();
