package changes

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// Each kind of file that runs code on a developer's machine, or on a forge,
// where such files really lie, and neighbours that do not.
func TestWhatRunsCodeIsNotable(t *testing.T) {
	t.Parallel()
	for why, paths := range map[string]string{
		"runs as a hook of git":                   "scripts/pre-commit tools/hooks/post-checkout .husky/_/husky.sh .husky/pre-push .githooks/x lefthook.yml .pre-commit-config.yaml .lintstagedrc.json a/commit-msg",
		"runs in continuous integration":          ".github/workflows/ci.yml .github/dependabot.yml .gitlab-ci.yml .gitlab/ci/build.yml .circleci/config.yml .travis.yml Jenkinsfile ci/Jenkinsfile.release azure-pipelines.yml .drone.yml action.yml .buildkite/pipeline.yml .forgejo/workflows/x.yml",
		"settings of git":                         ".gitattributes sub/.gitattributes .gitmodules .gitignore .gitconfig .lfsconfig .GitModules",
		"names or installs packages":              "package.json web/package.json PACKAGE.JSON package-lock.json pnpm-lock.yaml .npmrc .yarnrc.yml .yarn/releases/yarn.cjs binding.gyp Cargo.toml Cargo.lock .cargo/config.toml go.mod go.sum requirements.txt requirements-dev.txt Gemfile Gemfile.lock composer.json Podfile",
		"runs in a build or a test":               "Makefile makefile src/rules.mk GNUmakefile justfile Taskfile.yml CMakeLists.txt cmake/x.cmake configure meson.build BUILD pkg/BUILD.bazel defs.bzl .bazelrc build.rs setup.py pyproject.toml tests/conftest.py sitecustomize.py x.pth tox.ini build.gradle build.gradle.kts gradlew gradle/wrapper/gradle-wrapper.jar mvnw .mvn/jvm.config pom.xml Directory.Build.props a.csproj vite.config.ts jest.config.cjs .eslintrc.js tsconfig.json gulpfile.js flake.nix Rakefile ansible.cfg",
		"makes a container":                       "Dockerfile docker/Dockerfile.dev app.dockerfile docker-compose.yml compose.override.yaml .devcontainer/devcontainer.json .dockerignore",
		"settings of a shell or its tools":        ".envrc .env .env.local mise.toml .tool-versions .bashrc .bash_login home/.zshenv .profile .inputrc .ssh/config .netrc",
		"settings of an editor":                   ".vscode/tasks.json .vscode/settings.json .VSCode/tasks.json sub/.idea/workspace.xml .zed/tasks.json .vimrc .exrc .nvim.lua .dir-locals.el x.code-workspace x.sublime-project .editorconfig",
		"settings of a coding agent":              ".claude/settings.json .claude/settings.local.json sub/.claude/agents/x.md .codex/config.toml .cursor/mcp.json .cursor/rules/x.mdc .gemini/settings.json .mcp.json CLAUDE.md sub/AGENTS.md CLAUDE.local.md GEMINI.md .cursorrules .windsurfrules opencode.json .aider.conf.yml .kiro/hooks/x",
		"is loaded by an interpreter or debugger": ".gdbinit .lldbinit .pdbrc .irbrc .Rprofile .ghci .iex.exs",
		"": "main.go README.md src/hooks/useAuth.ts src/update.go docs/makefile.md environment.ts gitlog.txt my.env envrc src/config.js configs/app.json tests/test_x.py lib/package.go dockerfile/readme.md claude.go data.json a.props.txt",
	} {
		for p := range strings.FieldsSeq(paths) {
			c := fileChange{path: p, now: git.Entry{Mode: git.ModeFile}}
			if got := notable(c); got != why {
				t.Errorf("a new %s: %q, want %q", p, got, why)
			}
			c.old.Mode = git.ModeFile
			if got := notable(c); got != why {
				t.Errorf("a changed %s: %q, want %q", p, got, why)
			}
			c.now.Mode = 0
			if got := notable(c); why == "" && got != "" || why != "" && got != why+"; it is removed" {
				t.Errorf("a removed %s: %q", p, got)
			}
		}
	}
	for name, c := range map[string]struct {
		old, now uint32
		want     string
	}{
		"a new link": {0, git.ModeLink, "symbolic link"}, "a changed link": {git.ModeLink, git.ModeLink, "symbolic link"},
		"a file that became a link": {git.ModeFile, git.ModeLink, "symbolic link"}, "a link that became a file": {git.ModeLink, git.ModeFile, "was a symbolic link"},
		"a removed link": {git.ModeLink, 0, ""}, "a new program": {0, git.ModeExec, "executable"}, "a file that became one": {git.ModeFile, git.ModeExec, "executable"},
		"a changed program": {git.ModeExec, git.ModeExec, ""}, "a program that became a file": {git.ModeExec, git.ModeFile, "not executable any more"},
		"a removed program": {git.ModeExec, 0, ""}, "a new submodule": {0, git.ModeModule, "submodule"}, "a removed submodule": {git.ModeModule, 0, "submodule"},
		"a plain change": {git.ModeFile, git.ModeFile, ""},
	} {
		if got := notable(fileChange{path: "a/b", old: git.Entry{Mode: c.old}, now: git.Entry{Mode: c.now}}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Markers that match nothing, because they are not in lower case or are no patterns,
// would go unnoticed.
func TestMarkersCanMatch(t *testing.T) {
	t.Parallel()
	for _, m := range markers {
		for mark := range strings.FieldsSeq(m.names + " " + m.dirs) {
			name := strings.NewReplacer("*", "x", "?", "x").Replace(mark)
			in := name
			if strings.Contains(" "+strings.Join(strings.Fields(m.dirs), " ")+" ", " "+mark+" ") {
				in += "/x"
			}
			if known().why(in) == "" {
				t.Errorf("%s is not found by %q", in, mark)
			}
		}
	}
}
