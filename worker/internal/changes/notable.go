package changes

import (
	"path"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/git"
)

// markers list what programs of a developer's machine, or of a forge, run, load
// or obey without being asked: by the name anywhere, in the syntax of
// [path.Match], and by a directory on the way. All of it is in lower case, since
// some file systems tell no other.
var markers = []struct{ why, names, dirs string }{
	{"runs as a hook of git", `applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg
		post-commit pre-rebase post-checkout post-merge pre-push pre-receive update post-receive post-update reference-transaction
		push-to-checkout pre-auto-gc post-rewrite post-index-change sendemail-validate fsmonitor-watchman .pre-commit-config.y*ml
		.pre-commit-hooks.y*ml lefthook*.y*ml .lefthook*.y*ml lefthook*.toml lefthook*.json .overcommit.yml .lintstagedrc* lint-staged.config.*
		.huskyrc* .commitlintrc* .czrc`, `.husky .githooks git-hooks .lefthook .overcommit`},
	{"runs in continuous integration", `.gitlab-ci* .travis.yml azure-pipelines*.y*ml jenkinsfile* .drone.y*ml .drone.star .woodpecker.y*ml
		bitbucket-pipelines.yml appveyor.yml .appveyor.yml .cirrus.y*ml .cirrus.star cloudbuild.y*ml buildspec.y*ml action.y*ml renovate.json* .renovaterc* .goreleaser.y*ml .semaphore.yml`,
		`.github .gitlab .gitea .forgejo .circleci .buildkite .woodpecker .teamcity .semaphore .azure-pipelines`},
	{"settings of git", `.git* .lfsconfig .hgrc`, `.git* .hg`}, // after what is of a forge
	{"names or installs packages", `package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml bun.lock*
		bunfig.toml deno.json* deno.lock .npmrc .yarnrc* .pnpmfile.* .pnp.* binding.gyp cargo.toml cargo.lock go.mod go.sum go.work* pipfile*
		requirements*.txt constraints*.txt poetry.lock uv.lock pdm.lock pip.conf pip.ini .pypirc .condarc environment.y*ml gemfile* *.gemspec
		.gemrc composer.json composer.lock podfile* *.podspec package.swift package.resolved pubspec.y*ml pubspec.lock mix.exs mix.lock
		rebar.config nuget.config packages.config brewfile conanfile.* vcpkg.json`, `.yarn .cargo .bundle .nuget`},
	{"runs in a build or a test", `makefile *.mk gnumakefile bsdmakefile justfile .justfile *.just taskfile.y*ml magefile.go rakefile *.rake
		cmakelists.txt *.cmake cmakepresets.json cmakeuserpresets.json configure configure.ac meson.build build.ninja sconstruct wscript
		build build.bazel workspace workspace.bazel module.bazel .bazelrc *.bzl build.zig
		build.rs setup.py setup.cfg pyproject.toml conftest.py sitecustomize.py usercustomize.py *.pth tox.ini noxfile.py pytest.ini .coveragerc
		tasks.py fabfile.py *.gradle *.gradle.kts gradlew gradlew.bat gradle.properties gradle-wrapper.* mvnw mvnw.cmd pom.xml build.xml build.sbt
		plugins.sbt *.csproj *.fsproj *.vbproj *.vcxproj *.props *.targets *.sln *.slnx global.json gruntfile.* gulpfile.* *.config.js *.config.cjs
		*.config.mjs *.config.ts *.config.mts *.config.cts .eslintrc* .babelrc* .prettierrc* .mocharc* .stylelintrc* tsconfig*.json turbo.json
		nx.json lerna.json dune dune-project shell.nix default.nix flake.nix flake.lock stack.yaml *.cabal procfile tiltfile skaffold.y*ml
		ansible.cfg vagrantfile`, `.mvn .config`},
	{"makes a container", `dockerfile* *.dockerfile containerfile* .dockerignore docker-compose*.y*ml compose*.y*ml docker-bake.*`, `.devcontainer`},
	{"settings of a shell or its tools", `.env* .direnvrc mise*.toml .mise*.toml .tool-versions .asdfrc devbox.json .bashrc .bash_* .profile .zshrc
		.zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc config.fish .curlrc .wgetrc .netrc .screenrc .tmux.conf
		.psqlrc .sqliterc .my.cnf`, `.direnv .mise .ssh .aws .kube .docker`},
	{"settings of an editor", `.vimrc .exrc .nvimrc .nvim.lua .lvimrc .gvimrc .ideavimrc .dir-locals* .emacs .editorconfig *.code-workspace
		*.sublime-project *.sublime-settings .projectile`, `.vscode .idea .zed .vs .fleet .nova .helix .vim .nvim .theia .settings`},
	{"settings of a coding agent", `claude*.md agents*.md agent.md gemini.md copilot-instructions.md .cursorrules .windsurfrules .clinerules .roorules
		.goosehints .rules .mcp.json mcp.json opencode.json* .opencode.json* .crush.json .aider* .cursorignore .claudeignore`,
		`.claude .codex .cursor .gemini .qwen .windsurf .continue .cline .clinerules .roo .amazonq .kiro .opencode .crush .goose .agents .agent .augment .junie`},
	{"is loaded by an interpreter or debugger", `.gdbinit .lldbinit* .pdbrc* .irbrc .pryrc .rprofile .renviron .ghci .ocamlinit .iex.exs .perldb .pythonrc*
		.rspec .jupyter*`, `.ipython .jupyter`},
}

// marks of names and directories, and of those that are patterns.
type marked struct {
	names, dirs         map[string]string
	namesLike, dirsLike [][2]string
}

var known = sync.OnceValue(func() *marked {
	m := &marked{names: map[string]string{}, dirs: map[string]string{}}
	add := func(list, why string, exact map[string]string, like *[][2]string) {
		for name := range strings.FieldsSeq(list) {
			if strings.ContainsAny(name, "*?[") {
				*like = append(*like, [2]string{name, why})
				continue
			}
			exact[name] = why
		}
	}
	for _, mark := range markers {
		add(mark.names, mark.why, m.names, &m.namesLike)
		add(mark.dirs, mark.why, m.dirs, &m.dirsLike)
	}
	return m
})

// why says what a file of that path is to some program, or "".
func (m *marked) why(p string) string {
	if why := lookUp(path.Base(p), m.names, m.namesLike); why != "" {
		return why
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if why := lookUp(path.Base(dir), m.dirs, m.dirsLike); why != "" {
			return why
		}
	}
	return ""
}

func lookUp(name string, exact map[string]string, like [][2]string) string {
	// Some file systems take a name for the same that ends with these.
	name = strings.TrimRight(strings.ToLower(name), ". ")
	if why := exact[name]; why != "" {
		return why
	}
	for _, l := range like {
		if ok, _ := path.Match(l[0], name); ok {
			return l[1]
		}
	}
	return ""
}

// notable says why a changed file should be checked before people work in a
// checkout that has it, or "" if it does not.
func notable(c fileChange) string {
	switch {
	case c.now.Mode == git.ModeLink:
		return "symbolic link"
	case c.now.Mode == git.ModeModule || c.old.Mode == git.ModeModule:
		return "submodule"
	case c.now.Mode == git.ModeExec && c.old.Mode != git.ModeExec:
		return "executable"
	}
	why := known().why(c.path)
	switch {
	case why != "" && c.now.Mode == 0:
		return why + "; it is removed" // and with it what it forbade
	case why == "" && c.now.Mode != 0 && c.old.Mode == git.ModeExec && c.now.Mode != git.ModeExec:
		return "not executable any more"
	case why == "" && c.now.Mode != 0 && c.old.Mode == git.ModeLink:
		return "was a symbolic link"
	}
	return why
}

// notables lists the changes that deserve a look, and why.
func notables(changes []fileChange) []string {
	var found skipped
	for _, change := range changes {
		if why := notable(change); why != "" {
			found.add(change.path, why)
		}
	}
	return found.list()
}
