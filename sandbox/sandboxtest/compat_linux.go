package sandboxtest

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
)

// compat are things that agents do all day. None may stop working.
var compat = []struct {
	name   string
	needs  string // a program; the row is skipped without it
	script string
}{
	{"git commits", "git", `git init -q . && git config user.email a@b && git config user.name a && echo x > f && git add f && git commit -qm one && git mv f g && git commit -qam two && git stash list && git gc -q && test "$(git log --oneline | wc -l)" = 2`},
	{"git clones", "git", `git init -q a && cd a && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m x && cd .. && git clone -q a b && git -C a worktree add -q ../w`},
	{"git applies hooks", "git", `git init -q . && printf '#!/bin/sh\ntouch hooked\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m x && test -e hooked`},
	{"bash with jobs and substitutions", "bash", `bash -c 'cat <(echo a) >/dev/null && coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} y; test "$y" = x'`},
	{"make and gcc", "gcc", `printf '#include <stdio.h>\nint main(){puts("hi");return 0;}' > a.c && gcc -O1 -o a a.c && test "$(./a)" = hi`},
	{"make", "make", `printf 'all: b\nb:\n\techo made > b\n' > Makefile && make -s -j4 && test -e b`},
	{"node starts", "node", `node -e 'require("fs").writeFileSync("n", JSON.stringify(process.versions))' && test -s n`},
	{"node serves and connects", "node", `node -e 'const h=require("http");const s=h.createServer((q,r)=>r.end("ok")).listen(0,"localhost",()=>h.get({host:"localhost",port:s.address().port},r=>{r.on("data",d=>{process.exit(String(d)=="ok"?0:1)})}))'`},
	{"node lists interfaces", "node", `node -e 'process.exit(Object.keys(require("os").networkInterfaces()).length?0:1)'`},
	{"node workers", "node", `node -e 'const {Worker}=require("worker_threads");new Worker("require(\"worker_threads\").parentPort.postMessage(1)",{eval:true}).on("message",()=>process.exit(0))'`},
	{"node children and unix sockets", "node", `node -e 'const n=require("net");const s=n.createServer(c=>c.end("x")).listen("s.sock",()=>n.connect("s.sock").on("data",()=>process.exit(0)))' && node -e 'require("child_process").execSync("echo hi")'`},
	{"npm initialises and packs", "npm", `npm init -y >/dev/null && npm pack --silent >/dev/null && ls *.tgz >/dev/null`},
	{"python starts", "/usr/bin/python3", `/usr/bin/python3 -c 'import json,ssl,sqlite3,ctypes,tempfile; tempfile.TemporaryFile().write(b"x")'`},
	{"python multiprocessing", "/usr/bin/python3", `cat > m.py <<'E'
import multiprocessing as m
def f(x): return x*x
if __name__ == "__main__":
    with m.Pool(2) as p: assert p.map(f, [1,2,3]) == [1,4,9]
    with m.Manager() as g: d = g.dict(); d[1] = 2; assert d[1] == 2
    s = m.Semaphore(1); assert s.acquire()
E
/usr/bin/python3 m.py`},
	{"python asyncio subprocesses", "/usr/bin/python3", `/usr/bin/python3 -c 'import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1); o,_ = await p.communicate(); assert o == b"hi\n"
asyncio.run(main())'`},
	{"python names itself", "/usr/bin/python3", `/usr/bin/python3 -c 'import pwd,os,socket,getpass; assert pwd.getpwuid(os.getuid()).pw_name == "agent"; assert socket.gethostbyname("localhost") == "127.0.0.1"; socket.gethostbyname(socket.gethostname())'`},
	{"perl", "perl", `perl -MFile::Temp=tempfile -MSocket -e 'tempfile(); print "ok"' >/dev/null`},
	{"tar keeps modes", "tar", `mkdir d && chmod 2775 d && echo x > d/f && chmod 640 d/f && tar cf t.tar d && rm -r d && tar xpf t.tar && test "$(stat -c %a d/f)" = 640`},
	{"sed in place, find, xargs", "sed", `for i in 1 2 3; do echo a > f$i; done; find . -name 'f*' -print0 | xargs -0 -P 2 sed -i s/a/b/ && grep -q b f3`},
	{"locks and links", "flock", `flock l true && ln l h && ln -s l s && mkfifo p && mv h h2`},
	{"temporary directories", "mktemp", `d=$(mktemp -d) && echo x > $d/f && test -w /var/tmp && test -w /dev/shm && echo > /dev/null && head -c 8 /dev/urandom > $d/r`},
	{"gpg agent", "gpg", `export GNUPGHOME=$HOME/.gnupg; mkdir -m 700 $GNUPGHOME; gpg --batch --quiet --passphrase '' --quick-gen-key a@b default default never 2>/dev/null && echo x | gpg --batch --quiet -s -u a@b >/dev/null; s=$?; gpgconf --kill all; exit $s`},
	{"processes see each other", "ps", `sleep 5 & ps -e | grep -q sleep && kill $!`},
	{"nice and timeouts", "timeout", `nice -n 5 timeout 5 true && setsid true && nohup true 2>/dev/null`},
}

// Compatible runs what agents do all day. Programs that the host does not
// have are skipped; mounts show those that are outside its system directories.
func Compatible(t *testing.T, b sandbox.Backend, mounts ...sandbox.Mount) {
	Require(t, b)
	for _, c := range compat {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skip(err)
			}
			works(t, b, c.script, mounts)
		})
	}
	t.Run("go-builds-and-tests", func(t *testing.T) {
		if testing.Short() {
			t.Skip("compiles the standard library")
		}
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			t.Skip(err)
		}
		goroot, err := filepath.EvalSymlinks(strings.TrimSpace(string(root)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(goroot, "/usr/") {
			mounts = append(mounts, sandbox.Mount{Source: goroot, Target: goroot})
		}
		works(t, b, `export PATH=`+goroot+`/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off
printf 'module m\n\ngo 1.22\n' > go.mod
printf 'package m\nimport "testing"\nfunc TestX(t *testing.T) { t.TempDir() }\n' > m_test.go && go test ./... >/dev/null`, mounts)
	})
}

func works(t *testing.T, b sandbox.Backend, script string, mounts []sandbox.Mount) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	exit, err := sandbox.Run(ctx, b, sandbox.Spec{
		Args: []string{"bash", "-c", script}, Workspace: t.TempDir(), Mounts: mounts,
	}, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil || !exit.Success() {
		t.Errorf("got %v, err %v: %s", exit, err, out.String())
	}
}
