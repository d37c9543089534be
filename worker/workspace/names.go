package workspace

import (
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// display writes a path that an agent chose so that it is harmless in a
// terminal and in JSON: as it is, or quoted if it has anything unusual.
func display(p string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '"' || r == '\\' }
	if utf8.ValidString(p) && !strings.ContainsFunc(p, odd) {
		return p
	}
	return strconv.QuoteToASCII(p)
}

// runsCode lists what programs of a developer's machine run, load or obey
// without being asked: by the name anywhere, and by a directory on the way.
var (
	notableNames = map[string]bool{
		".envrc": true, ".mcp.json": true, ".npmrc": true, ".yarnrc": true, ".yarnrc.yml": true, ".pnpmfile.cjs": true,
		"package.json": true, "Makefile": true, "makefile": true, "GNUmakefile": true, "justfile": true, "Justfile": true,
		"conftest.py": true, "setup.py": true, "setup.cfg": true, "pyproject.toml": true, "sitecustomize.py": true, "tox.ini": true, "noxfile.py": true,
		"Cargo.toml": true, "build.rs": true, "mise.toml": true, ".mise.toml": true, ".tool-versions": true, "flake.nix": true, "shell.nix": true,
		"CLAUDE.md": true, "AGENTS.md": true, ".cursorrules": true,
		".bashrc": true, ".bash_profile": true, ".bash_login": true, ".profile": true, ".zshrc": true, ".zshenv": true, ".zprofile": true,
		"Dockerfile": true, ".dockerignore": true, "Jenkinsfile": true, ".gitlab-ci.yml": true, ".travis.yml": true, "azure-pipelines.yml": true,
		".pre-commit-config.yaml": true, "lefthook.yml": true, "Rakefile": true, "Gemfile": true, "CMakeLists.txt": true,
		"build.gradle": true, "build.gradle.kts": true, "settings.gradle": true, "gradlew": true, "pom.xml": true, "Taskfile.yml": true,
		".lldbinit": true, ".gdbinit": true, ".vimrc": true, ".exrc": true, ".nvim.lua": true, ".editorconfig": true,
	}
	notableDirs = map[string]bool{
		".husky": true, ".vscode": true, ".idea": true, ".claude": true, ".codex": true, ".cursor": true, ".gemini": true,
		".github": true, ".circleci": true, ".devcontainer": true, ".cargo": true, ".mvn": true, ".zed": true, ".vs": true, "hooks": true,
	}
)

// notable says why a changed file deserves a look before anybody works in a
// checkout that has it, or "" if it does not.
func notable(c fileChange) string {
	switch {
	case c.mode == git.ModeLink:
		return "symbolic link"
	case c.mode == git.ModeModule || c.oldMode == git.ModeModule:
		return "submodule"
	case c.mode == git.ModeExec && c.oldMode != git.ModeExec:
		return "executable"
	case c.mode == 0:
		return ""
	}
	name := path.Base(c.path)
	if notableNames[name] || strings.HasPrefix(name, ".git") || strings.HasPrefix(name, ".env") {
		return "runs or configures code"
	}
	for dir := path.Dir(c.path); dir != "."; dir = path.Dir(dir) {
		if notableDirs[path.Base(dir)] || strings.HasPrefix(path.Base(dir), ".git") {
			return "runs or configures code"
		}
	}
	return ""
}
