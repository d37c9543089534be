package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// compat are things that agents do all day. None may stop working.
var compat = []struct {
	name   string
	needs  string // a program inside; the row is skipped without it
	script string
	tool   bool // needs is looked up outside, and shown inside as $TOOL
	preset sandbox.Preset
}{
	{name: "git commits", needs: "git", script: `git init -q . && git config user.email a@b && git config user.name a && echo x > f && git add f && git commit -qm one && git mv f g && git commit -qam two && git stash list && git gc -q && test "$(git log --oneline | wc -l)" = 2`},
	{name: "git clones", needs: "git", script: `git init -q a && cd a && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m x && cd .. && git clone -q a b && git -C a worktree add -q ../w`},
	{name: "git applies hooks", needs: "git", script: `git init -q . && printf '#!/bin/sh\ntouch hooked\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m x && test -e hooked`},
	{name: "bash with jobs and substitutions", needs: "bash", script: `bash -c 'cat <(echo a) >/dev/null && coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} y; test "$y" = x'`},
	{name: "make and gcc", needs: "gcc", script: `printf '#include <stdio.h>\nint main(){puts("hi");return 0;}' > a.c && gcc -O1 -o a a.c && test "$(./a)" = hi`},
	{name: "make", needs: "make", script: `printf 'all: b\nb:\n\techo made > b\n' > Makefile && make -s -j4 && test -e b`},
	{name: "node starts", needs: "node", script: `node -e 'require("fs").writeFileSync("n", JSON.stringify(process.versions))' && test -s n`},
	{name: "node serves and connects", needs: "node", script: `node -e 'const h=require("http");const s=h.createServer((q,r)=>r.end("ok")).listen(0,"localhost",()=>h.get({host:"localhost",port:s.address().port},r=>{r.on("data",d=>{process.exit(String(d)=="ok"?0:1)})}))'`},
	{name: "node lists interfaces", needs: "node", script: `node -e 'process.exit(Object.keys(require("os").networkInterfaces()).length?0:1)'`},
	{name: "node workers", needs: "node", script: `node -e 'const {Worker}=require("worker_threads");new Worker("require(\"worker_threads\").parentPort.postMessage(1)",{eval:true}).on("message",()=>process.exit(0))'`},
	{name: "node children and unix sockets", needs: "node", script: `node -e 'const n=require("net");const s=n.createServer(c=>c.end("x")).listen("s.sock",()=>n.connect("s.sock").on("data",()=>process.exit(0)))' && node -e 'require("child_process").execSync("echo hi")'`},
	{name: "npm initialises and packs", needs: "npm", script: `npm init -y >/dev/null && npm pack --silent >/dev/null && ls *.tgz >/dev/null`},
	{name: "python starts", needs: "/usr/bin/python3", script: `/usr/bin/python3 -c 'import json,ssl,sqlite3,ctypes,tempfile; tempfile.TemporaryFile().write(b"x")'`},
	{name: "python multiprocessing", needs: "/usr/bin/python3", script: `cat > m.py <<'E'
import multiprocessing as m
def f(x): return x*x
if __name__ == "__main__":
    with m.Pool(2) as p: assert p.map(f, [1,2,3]) == [1,4,9]
    with m.Manager() as g: d = g.dict(); d[1] = 2; assert d[1] == 2
    s = m.Semaphore(1); assert s.acquire()
E
/usr/bin/python3 m.py`},
	{name: "python asyncio subprocesses", needs: "/usr/bin/python3", script: `/usr/bin/python3 -c 'import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1); o,_ = await p.communicate(); assert o == b"hi\n"
asyncio.run(main())'`},
	{name: "python names itself", needs: "/usr/bin/python3", script: `/usr/bin/python3 -c 'import pwd,os,socket,getpass; assert pwd.getpwuid(os.getuid()).pw_name == "agent"; assert socket.gethostbyname("localhost") == "127.0.0.1"; socket.gethostbyname(socket.gethostname())'`},
	{name: "perl", needs: "perl", script: `perl -MFile::Temp=tempfile -MSocket -e 'tempfile(); print "ok"' >/dev/null`},
	{name: "tar keeps modes", needs: "tar", script: `mkdir d && chmod 2775 d && echo x > d/f && chmod 640 d/f && tar cf t.tar d && rm -r d && tar xpf t.tar && test "$(stat -c %a d/f)" = 640`},
	{name: "sed in place, find, xargs", needs: "sed", script: `for i in 1 2 3; do echo a > f$i; done; find . -name 'f*' -print0 | xargs -0 -P 2 sed -i s/a/b/ && grep -q b f3`},
	{name: "locks and links", needs: "flock", script: `flock l true && ln l h && ln -s l s && mkfifo p && mv h h2`},
	{name: "temporary directories", needs: "mktemp", script: `d=$(mktemp -d) && echo x > $d/f && test -w /var/tmp && test -w /dev/shm && echo > /dev/null && head -c 8 /dev/urandom > $d/r`},
	{name: "gpg agent", needs: "gpg", script: `export GNUPGHOME=$HOME/.gnupg; mkdir -m 700 $GNUPGHOME; gpg --batch --quiet --passphrase '' --quick-gen-key a@b default default never 2>/dev/null && echo x | gpg --batch --quiet -s -u a@b >/dev/null; s=$?; gpgconf --kill all; exit $s`},
	{name: "processes see each other", needs: "ps", script: `sleep 60 & for try in 1 2 3 4 5 6 7 8 9; do ps -e | grep -q sleep && kill $! && exit 0; done; exit 1`}, // it is a shell at first
	{name: "nice and timeouts", needs: "timeout", script: `nice -n 5 timeout 5 true && setsid true && nohup true 2>/dev/null`},
	{name: "npm installs a package", needs: "npm", script: `mkdir dep app && cd dep && npm init -y >/dev/null && echo 'module.exports = 42' > index.js && npm pack --silent >/dev/null && cd ../app && npm init -y >/dev/null && npm install --offline --no-audit --no-fund --silent ../dep/dep-1.0.0.tgz && node -e 'process.exit(require("dep") === 42 ? 0 : 1)'`},
	{name: "tsx runs TypeScript", needs: "tsx", tool: true, script: withNode + `printf 'enum E { A = 42 }\nconst x: number = E.A; console.log(x)\n' > a.ts && test "$("$TOOL" a.ts)" = 42`},
	{name: "pip installs a source package", needs: "/usr/bin/pip3", script: `mkdir -p p/src && printf 'from setuptools import setup\nsetup(name="p", version="1", py_modules=["pmod"], package_dir={"": "src"})\n' > p/setup.py && echo 'x = 42' > p/src/pmod.py && /usr/bin/pip3 install --quiet --no-index --no-build-isolation --target t ./p && PYTHONPATH=t /usr/bin/python3 -c 'import pmod; assert pmod.x == 42'`},
	{name: "pip installs a wheel", needs: "/usr/bin/pip3", script: `/usr/bin/python3 - <<'E'
import zipfile
with zipfile.ZipFile("w-1-py3-none-any.whl", "w") as z:
    z.writestr("wmod.py", "x = 42\n")
    z.writestr("w-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: w\nVersion: 1\n")
    z.writestr("w-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("w-1.dist-info/RECORD", "")
E
/usr/bin/pip3 install --quiet --no-index --target t ./w-1-py3-none-any.whl && PYTHONPATH=t /usr/bin/python3 -c 'import wmod; assert wmod.x == 42'`},
	{name: "a server and its client", needs: "/usr/bin/python3", script: `echo served > page; /usr/bin/python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 & /usr/bin/python3 -c 'import time, urllib.request
for _ in range(300):
    try: assert urllib.request.urlopen("http://localhost:8000/page").read() == b"served\n"; break
    except OSError: time.sleep(0.1)
else: raise SystemExit("no answer")' && kill $!`},
	{name: "go builds and tests", needs: "go", tool: true, script: `export GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off
printf 'module m\n\ngo 1.22\n' > go.mod
printf 'package m\nimport "testing"\nfunc TestX(t *testing.T) { t.TempDir() }\n' > m_test.go && "$TOOL" test ./... >/dev/null`},
	{name: "a browser without its sandbox", needs: "chromium", script: `chromium --headless --no-sandbox ` + dump},
	{name: "a browser with its sandbox", needs: "chromium", preset: sandbox.PresetBrowser, script: `chromium --headless ` + dump},
	{name: "claude starts", needs: "claude", tool: true, script: `"$TOOL" --version | grep -q '[0-9]'`},
	{name: "codex starts", needs: "codex", tool: true, script: withNode + `"$TOOL" --version | grep -q '[0-9]'`},
}

// dump makes a browser print a page that its own script has changed.
const dump = `--disable-gpu --dump-dom 'data:text/html,<p id=x>no</p><script>document.getElementById("x").textContent = 6 * 7</script>' 2>err | grep -q '>42<' || { tail -5 err; exit 1; }`

// Compatible runs what agents do all day. Programs that the host, or an
// image, does not have are skipped. Each of with changes the Specs for the
// backend.
func Compatible(t *testing.T, b sandbox.Backend, with ...func(sandbox.Spec) sandbox.Spec) {
	Require(t, b)
	for _, c := range compat {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			g := target{b, with}
			script := "command -v " + c.needs + " >/dev/null || exit " + strconv.Itoa(absent) + "\n" + c.script
			if c.tool {
				if testing.Short() {
					t.Skip("short: it is large")
				}
				path, shown, err := findTool(t, c.needs, g.spec(sandbox.Spec{}).Image != "")
				if err != nil {
					missing(t, g, c.needs, err)
				}
				g.with = append(slices.Clone(g.with), func(s sandbox.Spec) sandbox.Spec {
					s.Mounts = append(slices.Clone(s.Mounts), shown...)
					return s
				})
				script = "TOOL=" + path + "\n" + c.script
			}
			g.works(t, c.needs, c.preset, script)
		})
	}
}

const absent = 86 // the exit code of a script without its program

// withNode begins the scripts of programs that node runs.
const withNode = "command -v node >/dev/null || exit 86\n"

// missing skips the test, or fails it where the program is promised. What an
// image lacks was never promised.
func missing(t *testing.T, g target, program string, err error) {
	t.Helper()
	if g.spec(sandbox.Spec{}).Image != "" {
		t.Skipf("the image has no %s", filepath.Base(program))
	}
	if required(filepath.Base(program)) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// findTool finds a program of the host that may lie anywhere, and what has to
// be shown of it: a tree of node's packages, or the program's own. An image
// shows nothing of the host by itself.
func findTool(t *testing.T, name string, image bool) (path string, shown []sandbox.Mount, err error) {
	t.Helper()
	if path = os.Getenv("PENSTOCK_" + strings.ToUpper(name)); path == "" {
		if path, err = exec.LookPath(name); err != nil {
			return "", nil, err
		}
	}
	if name == "go" { // what is found may be a front for another version
		root, err := exec.CommandContext(t.Context(), path, "env", "GOROOT").Output()
		if err != nil {
			return "", nil, err
		}
		path = filepath.Join(strings.TrimSpace(string(root)), "bin/go")
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, err
	}
	tree := filepath.Dir(filepath.Dir(path))
	if i := strings.Index(path, "/node_modules/"); i >= 0 {
		tree = path[:i] + "/node_modules"
	}
	if strings.HasPrefix(tree+"/", "/usr/") && !image {
		return path, nil, nil
	}
	return path, []sandbox.Mount{{Source: tree, Target: tree}}, nil
}

func (g target) works(t *testing.T, needs string, preset sandbox.Preset, script string) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	exit, err := sandbox.Run(ctx, g, g.spec(sandbox.Spec{
		Args: []string{"bash", "-c", script}, Workspace: t.TempDir(), Preset: preset,
	}), sandbox.Streams{Stdout: &out, Stderr: &out})
	if err == nil && exit.Code == absent {
		missing(t, g, needs, errors.New(needs+" is not in the jail"))
	}
	if err != nil || !exit.Success() {
		t.Errorf("got %v, err %v: %s", exit, err, out.String())
	}
}
