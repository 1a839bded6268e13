// Light or dark: as the system has it, until it is chosen.

// The choice outlives the page where the browser lets a file keep anything.
const kept = { get() { try { return localStorage.getItem("agentgen-theme"); } catch { return null; } }, set(value) { try { localStorage.setItem("agentgen-theme", value); } catch { /* then not */ } } };
if (kept.get()) document.documentElement.dataset.theme = kept.get();
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  kept.set(document.documentElement.dataset.theme);
});
