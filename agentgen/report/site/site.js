"use strict";
// Lays out the sources of a kernel's page.

// A page from a disk may not save a file beside it by its link: this makes the file anew.
function saving(name, source) {
  const save = el("button", { type: "button", class: "chip" }, "download");
  save.addEventListener("click", () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([source])), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
  return save;
}

const data = document.getElementById("data");
if (data) {
  const { kernel, reference, file } = JSON.parse(data.textContent);
  document.getElementById("source-kernel").replaceChildren(...whole(kernel, file ? saving(file, kernel) : ""));
  document.getElementById("source-reference").replaceChildren(...whole(reference));
}
const command = document.getElementById("command");
if (command) command.append(" ", copying(command.querySelector("code").textContent));
document.documentElement.dataset.ready = "";
