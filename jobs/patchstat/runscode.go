package patchstat

import (
	"path"
	"strings"
)

// RunsCode says why a change to a file may run code on the machine of a user who
// applies the patch, before the user runs the program: such files should be read first.
// Empty means that no reason is known.
func RunsCode(f File) string {
	switch f.Mode {
	case "120000":
		return "symbolic link"
	case "160000":
		return "submodule"
	case "100755":
		return "executable"
	}
	if f.Deleted {
		return ""
	}
	name := strings.ToLower(path.Base(f.Path))
	full := "/" + strings.ToLower(f.Path)
	for _, rule := range runningPaths {
		if strings.Contains(full, rule.part) {
			return rule.why
		}
	}
	return runningNames[name]
}

var runningPaths = []struct{ part, why string }{
	{"/.github/workflows/", "CI workflow"},
	{"/.github/actions/", "CI workflow"},
	{"/.gitlab-ci", "CI workflow"},
	{"/.circleci/", "CI workflow"},
	{"/.husky/", "git hook"},
	{"/.githooks/", "git hook"},
	{"/.git/", "git's own files"},
	{"/.vscode/", "editor task"},
	{"/.idea/", "editor task"},
	{"/.devcontainer/", "development container"},
	{"/.claude/", "agent settings"},
	{"/.cargo/config", "build settings"},
}

var runningNames = map[string]string{
	".gitattributes":          "git filters",
	".gitmodules":             "submodule",
	".gitlab-ci.yml":          "CI workflow",
	"jenkinsfile":             "CI workflow",
	".pre-commit-config.yaml": "git hook",
	".envrc":                  "shell hook",
	".mcp.json":               "agent settings",
	"makefile":                "build script",
	"justfile":                "build script",
	"cmakelists.txt":          "build script",
	"build.rs":                "build script",
	"build.gradle":            "build script",
	"build.gradle.kts":        "build script",
	"pom.xml":                 "build script",
	"package.json":            "install scripts",
	"setup.py":                "install scripts",
	"pyproject.toml":          "build settings",
	"conftest.py":             "runs with every test",
	"sitecustomize.py":        "runs with every program",
	"dockerfile":              "image build",
}
