/* `/` focuses the search field; "Copy" buttons copy; a time says in its title when that was where the reader is; a form that changes something is sent once; Django's own icons that
   have a name are pictures. */
"use strict";

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  const field = document.getElementById("sw-find");
  if (event.key !== "/" || typing || !field || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  field.focus();
  field.select();
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || !navigator.clipboard) return;
  navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "Copied"; });
});

// A page says times in the zone that its reader has chosen. Whoever points at one is told their browser's, too.
document.addEventListener("mouseover", (event) => {
  const time = event.target.closest("time[datetime]");
  if (!time || time.dataset.local) return;
  time.dataset.local = new Date(time.dateTime).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "long" });
  time.title += ` · ${time.dataset.local} where you are`;
});

// The server refuses the second of two identical orders anyway; this only saves a person the surprise.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-once]")) return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
// Back from the next page: the browser may show this one as it was left.
window.addEventListener("pageshow", () => {
  document.querySelectorAll("[data-once]").forEach((form) => { delete form.dataset.sent; });
});

// Django's script makes spans with an aria-label, which only what has a role may have.
window.addEventListener("load", () => {
  document.querySelectorAll(".help-tooltip[aria-label]").forEach((icon) => icon.setAttribute("role", "img"));
});

// The zone of the browser is offered where a zone is chosen, if the server knows it.
window.addEventListener("load", () => {
  const button = document.getElementById("sw-browser-zone");
  const field = document.getElementById("id_zone");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!button || ![...field.options].some((option) => option.value === zone)) return;
  button.textContent = `Take this browser’s: ${zone}`;
  button.hidden = false;
  button.addEventListener("click", () => { field.value = zone; field.focus(); });
});
