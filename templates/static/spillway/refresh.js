/* Home every ten seconds, a page of what is under way until that has ended: the fresh page is laid over the old one,
   node by node. Focus stays where it is, what was opened stays open, the list under the pointer keeps its order, and the
   headline is announced only when its words change. */
"use strict";

(() => {
  const live = document.querySelector("[data-live]");
  const toggle = document.querySelector("[data-refresh]");
  if (!live || !toggle) return;
  const seconds = Number(toggle.dataset.refresh);
  const note = document.getElementById("sw-refresh-note");
  let stopped = sessionStorage.getItem("sw-stopped") === "yes";

  const inUse = (node) => node.contains(document.activeElement) || node.matches(":hover");
  const keys = (node) => Array.from(node.children, (child) => child.dataset.key || "").join("\n");

  function lay(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      if (old.nodeType !== Node.ELEMENT_NODE || !inUse(old)) old.replaceWith(fresh.cloneNode(true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.isEqualNode(fresh) || old.hasAttribute("data-keep")) return;
    if (old.hasAttribute("data-keyed") && keys(old) !== keys(fresh) && inUse(old)) return;
    for (const { name } of Array.from(old.attributes)) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = Array.from(old.childNodes);
    const after = Array.from(fresh.childNodes);
    after.forEach((child, index) => {
      if (before[index]) lay(before[index], child);
      else old.append(child.cloneNode(true));
    });
    before.slice(after.length).forEach((child) => child.remove());
  }

  async function refresh() {
    if (stopped || document.hidden) return;
    try {
      const answer = await fetch(live.dataset.live, { headers: { "X-Requested-With": "fetch" } });
      if (answer.redirected || answer.status === 403) return say("Signed out. Load the page again.", true);
      if (!answer.ok) throw new Error(answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (stopped) return; // while the answer was on its way
      lay(live, fresh.querySelector("[data-live]"));
      if (!fresh.querySelector("[data-refresh]")) return clearInterval(timer); // it was the last
      say("", false);
    } catch {
      say("No answer: the numbers below are old.", true);
    }
  }

  function say(words, toned) {
    note.textContent = words || (stopped ? "not refreshed" : `refreshed every ${seconds} s`);
    note.classList.toggle("sw-warn", toned);
    note.classList.toggle("sw-toned", toned);
    toggle.textContent = stopped ? "Refresh again" : "Stop refreshing";
  }

  toggle.addEventListener("click", () => {
    stopped = !stopped;
    sessionStorage.setItem("sw-stopped", stopped ? "yes" : "no");
    say("", false);
    refresh();
  });
  toggle.hidden = false;
  say("", false);
  const timer = setInterval(refresh, seconds * 1000);
})();
