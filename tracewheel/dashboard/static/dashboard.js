// Keys and the switch of the theme. All pages work without this file.
const typing = (target) => target.closest("input:not([type=checkbox]), select, textarea") !== null;
const rows = () => [...document.querySelectorAll("[data-row]")];
let going = 0;

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  all.forEach((row) => row.classList.toggle("at", row === next));
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

const follow = (selector) => document.querySelector(selector)?.click();

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return document.activeElement?.blur();
  if (typing(event.target)) return;
  if (Date.now() - going < 1500) {
    going = 0;
    follow(`[data-go="${CSS.escape(event.key)}"]`);
    return event.preventDefault();
  }
  const actions = {
    g: () => (going = Date.now()),
    j: () => move(1),
    k: () => move(-1),
    t: theme,
    "[": () => follow("[rel=prev]"),
    "]": () => follow("[rel=next]"),
    "?": () => follow('[data-go="h"]'),
    "/": () => document.querySelector("[data-search]")?.focus(),
  };
  if (!actions[event.key]) return;
  actions[event.key]();
  event.preventDefault();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-theme-switch]")) theme();
});
