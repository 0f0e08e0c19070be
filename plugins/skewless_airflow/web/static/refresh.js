// Ask for this page again while its run goes on, and keep what the reader has opened. A page that says no more
// (the run has ended, or the login) is loaded as it is.
"use strict";
const again = async () => {
  if (document.hidden) return void setTimeout(again, 3000);
  const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
  if (!answer) return void setTimeout(again, 10000);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok || !page.querySelector('script[src$="refresh.js"]')) return void location.reload();
  document.querySelectorAll("details[open]").forEach((one) => page.getElementById(one.id)?.setAttribute("open", ""));
  document.getElementById("page").replaceWith(document.adoptNode(page.getElementById("page")));
  setTimeout(again, 3000);
};
setTimeout(again, 3000);
