"use strict";
// Lays out the sources of a kernel's page.

const data = document.getElementById("data");
if (data)
  for (const [name, source] of Object.entries(JSON.parse(data.textContent)))
    document.getElementById(`source-${name}`).replaceChildren(...whole(source));
const command = document.getElementById("command");
if (command) command.append(" ", copying(command.querySelector("code").textContent));
document.documentElement.dataset.ready = "";
