// Ask for this page again while there may be news, and write into it only what has changed: focus, selection, scrolled
// tables, opened details and ticked boxes stay. A page that asks no more (its run has ended) is the last one.
"use strict";
const seconds = Number(document.currentScript.dataset.seconds);
const alike = (one, other) => one.nodeName === other.nodeName && (one.id || "") === (other.id || "");

const remove = (from, until) => {
  while (from !== until) {
    const gone = from;
    from = from.nextSibling;
    gone.remove();
  }
};

const merge = (shown, fresh) => {
  if (shown.isEqualNode(fresh)) return;
  if (shown.nodeType !== Node.ELEMENT_NODE) return void (shown.nodeValue = fresh.nodeValue);
  for (const { name, value } of fresh.attributes) if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  for (const { name } of [...shown.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && shown.nodeName === "DETAILS")) shown.removeAttribute(name);
  }
  let next = shown.firstChild;
  for (const child of [...fresh.childNodes]) {
    let kept = next;
    if (child.id) while (kept && kept.id !== child.id) kept = kept.nextSibling;
    if (kept && alike(kept, child)) {
      remove(next, kept);
      next = kept.nextSibling;
      merge(kept, child);
    } else shown.insertBefore(document.adoptNode(child), next);
  }
  remove(next, null);
};

const again = async () => {
  if (document.hidden) return void setTimeout(again, 1000);
  const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
  if (!answer) return void setTimeout(again, 10000);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok || !page.getElementById("page")) return void location.reload();
  document.title = page.title;
  merge(document.getElementById("page"), page.getElementById("page"));
  if (page.querySelector('script[src$="refresh.js"]')) setTimeout(again, seconds * 1000);
};
setTimeout(again, seconds * 1000);
