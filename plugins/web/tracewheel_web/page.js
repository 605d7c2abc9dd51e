// What an agent sees of a page, and where it acts. Runs in an isolated world: it shares the page's elements, not the objects
// of the page's scripts, so that no page can change what is read here. `start` is the last number that was given before.
(start) => {
  const MOST_NODES = 20000, PRUNE_AFTER = 2000, MOST_ITEMS = 600, LONGEST = 200, MOST_OPTIONS = 40;
  const CONTROLS = "a[href],button,input,select,textarea,summary,[contenteditable=''],[contenteditable=true]", FIELDS = "button,input,select,textarea";
  const ROLES = new Set(("button checkbox combobox gridcell link listbox menuitem menuitemcheckbox menuitemradio option radio " +
    "searchbox slider spinbutton switch tab textbox treeitem").split(" "));
  const SILENT = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD"]);
  const numbers = new WeakMap(), elements = new Map();
  let last = start;

  // A form's own properties, and the document's, may be hidden by elements of that name: these are the true ones.
  const getter = (owner, name) => { const get = Object.getOwnPropertyDescriptor(owner.prototype, name).get; return (node) => get.call(node); };
  const method = (owner, name) => (node, ...given) => owner.prototype[name].apply(node, given);
  const firstChild = getter(Node, "firstChild"), nextSibling = getter(Node, "nextSibling"), nodeType = getter(Node, "nodeType");
  const tagName = getter(Element, "tagName"), shadowRoot = getter(Element, "shadowRoot"), matches = method(Element, "matches");
  const boxOf = method(Element, "getBoundingClientRect"), bodyOf = getter(Document, "body"), titleOf = getter(Document, "title");
  const rootOf = getter(Document, "documentElement"), atPoint = method(Document, "elementFromPoint");

  const clean = (text) => text.slice(0, 4 * LONGEST).replace(/\s+/g, " ").trim().slice(0, LONGEST);
  const numberOf = (element) => {
    if (!numbers.has(element)) { numbers.set(element, ++last); elements.set(last, new WeakRef(element)); }
    return numbers.get(element);
  };
  const elementOf = (ref) => { const found = elements.get(ref)?.deref(); return found?.isConnected ? found : null; };
  const isOff = (element) => element.matches(":disabled") || element.getAttribute("aria-disabled") === "true";
  const isSeen = (box) => box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  const hasInput = (element) => element.matches("textarea, input, [contenteditable=''], [contenteditable=true]");

  const isControl = (element, style, parentStyle) => {
    if (element.matches(CONTROLS)) return true;
    if (ROLES.has(element.getAttribute("role"))) return !element.querySelector(FIELDS);
    if (element.tabIndex >= 0 && !element.querySelector(CONTROLS)) return true;
    // Many pages make plain elements clickable; what tells is the pointer. Of nested ones the outermost counts, unless it
    // holds controls of its own or is a large part of the page.
    if (style.cursor !== "pointer" || parentStyle?.cursor === "pointer" || element.tagName === "LABEL") return false;
    return !element.querySelector(CONTROLS) && element.textContent.length <= LONGEST;
  };

  const describe = (element, box) => {
    const tag = element.tagName, type = element.type, item = {ref: numberOf(element), seen: isSeen(box)};
    const role = element.computedRole;
    item.role = tag === "INPUT" && ["date", "time", "datetime-local", "month", "week", "color", "file"].includes(type) ? type
      : ROLES.has(role) ? role : tag === "SELECT" ? "combobox" : "clickable";
    const shown = getComputedStyle(element).fontSize === "0px" ? "" : element.textContent;
    item.name = clean(element.computedName || "") || clean(tag === "INPUT" || tag === "SELECT" || tag === "TEXTAREA" ? "" : shown)
      || clean(element.title || element.placeholder || element.alt || "") || (item.role === "clickable" ? clean(`${element.className || element.id}`) : "");
    const state = [];
    if (type === "checkbox" || type === "radio" ? element.checked : element.getAttribute("aria-checked") === "true") state.push("checked");
    if (element.getAttribute("aria-selected") === "true" || element.classList.contains("selected")) state.push("selected");
    const open = element.getAttribute("aria-expanded");
    if (open) state.push(open === "true" ? "expanded" : "collapsed");
    if (isOff(element)) state.push("disabled");
    if (state.length) item.state = state;
    if (tag === "SELECT") {
      item.options = [...element.options].slice(0, MOST_OPTIONS).map((option) => clean(option.label));
      item.value = [...element.selectedOptions].map((option) => clean(option.label)).join(", ");
    } else if (type === "password") item.value = "•".repeat(Math.min(element.value.length, 20));
    else if (hasInput(element) && !["checkbox", "radio", "submit", "button", "image", "reset"].includes(type))
      item.value = clean(element.value ?? element.textContent);
    return item;
  };

  // The visible page in document order, without recursion: a page may nest as deep as it likes.
  const read = (skip) => {
    const items = [], stack = [];
    let text = "", textSeen = false, visited = 0, unread = 0;
    const flush = () => {
      const found = clean(text);
      // What stands in a control's row of a table belongs to its line.
      if (found.startsWith("|") && items.at(-1)?.ref && !items.at(-1).row) items.at(-1).row = found;
      else if (found && items.length < MOST_ITEMS) items.push({ref: 0, role: "text", name: found, seen: textSeen});
      else if (found) unread++;
      text = ""; textSeen = false;
    };
    const root = bodyOf(document);
    if (!root) return {items, unread};
    stack.push({node: root, parent: null, quiet: false});
    while (stack.length) {
      const {node, parent, quiet, leave, box: above} = stack.pop();
      if (leave) { if (leave === "cell") text += " | "; else flush(); continue; }
      if (++visited > MOST_NODES) { unread++; break; }
      if (node !== root && nextSibling(node))
        stack.push({node: nextSibling(node), parent, quiet, box: above});
      if (nodeType(node) === Node.TEXT_NODE) {
        if (!quiet && text.length < 4 * LONGEST && parent && parent.visibility === "visible" && parent.fontSize !== "0px") {
          text += node.data.slice(0, 4 * LONGEST); textSeen = textSeen || !above || isSeen(above);
        }
        continue;
      }
      if (nodeType(node) !== Node.ELEMENT_NODE || SILENT.has(tagName(node)) || (skip && matches(node, skip))) continue;
      const tag = tagName(node);
      const style = getComputedStyle(node);
      if (style.display === "none") continue;
      const box = boxOf(node);
      if (visited > PRUNE_AFTER && (box.top > 2 * innerHeight || box.bottom < -innerHeight) && box.height > 0) { unread++; continue; }
      const inline = style.display.startsWith("inline") || style.display === "contents";
      if (style.visibility === "visible" && node !== root && tag !== "FORM" && isControl(node, style, parent) && (box.width > 0 || tag === "INPUT")) {
        flush();
        if (items.length < MOST_ITEMS) items.push(describe(node, box)); else unread++;
        continue;
      }
      if (tag === "IFRAME" || tag === "IMG" || tag === "CANVAS") {
        const name = clean(node.computedName || node.title || "");
        if (name || tag === "IFRAME") text += ` [${tag === "IMG" ? "image" : tag.toLowerCase()} ${name}] `;
        continue;
      }
      const first = firstChild(shadowRoot(node) ?? node);
      if (tag === "BR") flush();
      if (!first) continue;
      const cell = style.display === "table-cell";
      if (!inline && !cell) flush();
      if (!inline || cell) stack.push({leave: cell ? "cell" : "block"});
      // The text of a label is its control's name already.
      const named = tag === "LABEL" && node.control?.computedName;
      stack.push({node: first, parent: style, quiet: quiet || Boolean(named), box});
    }
    flush();
    const trimmed = (text) => text.replace(/(\s*\|)+\s*$/, "");
    for (const item of items) { if (item.row) item.row = trimmed(item.row); if (item.role === "text") item.name = trimmed(item.name); }
    return {items: items.filter((item) => item.ref || item.name), unread, last, title: clean(titleOf(document)), path: location.pathname + location.search,
      below: Math.max(0, Math.round(rootOf(document).scrollHeight - scrollY - innerHeight))};
  };

  const frame = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done, 0)); setTimeout(done, 100); });

  const reach = (ref) => {
    const element = elementOf(ref);
    if (!element) return {problem: `ref ${ref} is gone: the page changed`};
    if (isOff(element)) return {problem: `ref ${ref} is disabled`};
    let over = null;
    for (const block of ["nearest", "center"]) {
      element.scrollIntoView({block, inline: "nearest", behavior: "instant"});
      const box = [...element.getClientRects()].find((one) => one.width > 0 && one.height > 0);
      if (!box) return {problem: `ref ${ref} is not visible`};
      const x = Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 1), y = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 1);
      over = atPoint(document, x, y);
      while (over?.shadowRoot?.elementFromPoint(x, y) && over.shadowRoot.elementFromPoint(x, y) !== over) over = over.shadowRoot.elementFromPoint(x, y);
      if (over && (element === over || element.contains(over) || over.getRootNode().host === element || [...(element.labels ?? [])].some((one) => one.contains(over))))
        return {element, x, y};
    }
    return {problem: `ref ${ref} is covered by another part of the page`};
  };
  const changed = (element) => { for (const name of ["input", "change"]) element.dispatchEvent(new Event(name, {bubbles: true})); };
  const without = ({element, ...rest}) => rest;

  globalThis.tracewheel = {
    look: async (skip) => { await frame(); return read(skip); },
    point: (ref) => without(reach(ref)),
    fill: (ref, text) => {
      const found = reach(ref), {element} = found;
      if (!element) return found;
      if (!hasInput(element) || element.readOnly || ["checkbox", "radio", "submit", "button", "image", "reset", "file"].includes(element.type))
        return {problem: `ref ${ref} takes no text`};
      element.focus();
      if (element.tagName === "INPUT" && !["text", "search", "url", "tel", "email", "password", "number"].includes(element.type)) {
        const before = element.value;
        element.value = text;
        if (element.value !== text) { element.value = before; return {problem: `ref ${ref} takes no such value (a date as 2026-01-31, a time as 15:04)`}; }
        changed(element);
        return {x: found.x, y: found.y, type: false};
      }
      if (element.select) element.select(); else getSelection().selectAllChildren(element);
      return {x: found.x, y: found.y, type: true};
    },
    select: (ref, wanted) => {
      const element = elementOf(ref);
      if (!element) return {problem: `ref ${ref} is gone: the page changed`};
      if (element.tagName !== "SELECT") return {problem: `ref ${ref} is no list of options: click on what is wanted`};
      if (isOff(element)) return {problem: `ref ${ref} is disabled`};
      const option = [...element.options].find((one) => clean(one.label) === clean(wanted));
      if (!option || option.disabled) return {problem: `ref ${ref} has no option "${clean(wanted)}"`};
      option.selected = element.multiple ? !option.selected : true;
      changed(element);
      return without(reach(ref));
    },
    scroll: (direction) => {
      const before = scrollY;
      scrollBy({top: (direction === "up" ? -0.8 : 0.8) * innerHeight, behavior: "instant"});
      return scrollY === before ? {problem: `the page does not scroll further ${direction}`} : {};
    },
  };
}
