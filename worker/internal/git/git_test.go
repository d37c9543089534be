package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"fatal: unable to access 'https://user:s3cret@example.org/x.git/': no": "fatal: unable to access 'https://example.org/x.git/': no",
		"https://tok@en:a/b@example.org/x":                                     "https://example.org/x",
		"https://example.org/x?token=s3cret":                                   "https://example.org/x",
		"git@example.org:a/b":                                                  "git@example.org:a/b",
		"/a/b@c":                                                               "/a/b@c",
	} {
		if got := Redact(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestErrorConditions(t *testing.T) {
	for _, c := range []struct {
		stderr string
		want   error
		text   string
	}{
		{"error: unable to write file x: No space left on device\nfatal: cannot\n", syscall.ENOSPC, "git fetch: unable to write file x: No space left on device; cannot"},
		{"fatal: remote error: upload-pack: not our ref 123\n", ErrNoObject, "git fetch: remote error: upload-pack: not our ref 123"},
		{"warning: x\nfatal: https://u:p@h/x is gone\n", nil, "git fetch: https://h/x is gone"},
		{"", nil, "git fetch: exit status 3"},
	} {
		exit := exec.Command("sh", "-c", "exit 3").Run()
		err := newError([]string{"fetch"}, exit, c.stderr)
		if c.want != nil && !errors.Is(err, c.want) || err.Error() != c.text {
			t.Errorf("got %q (%v), want %q (%v)", err, errors.Unwrap(err), c.text, c.want)
		}
	}
}

func TestIsGitDirAsGit(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	repo := Repo{Dir: filepath.Join(dir, ".git"), WorkTree: dir}
	id, err := repo.Output(t.Context(), "hash-object", "-w", "-t", "blob", "/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		".git", ".GIT", ".Git", ".git ", ".git.", ".git. .", ".git::$INDEX_ALLOCATION", ".git:x", "git~1", "GIT~1", "git~1 ", "git~2", "git~10",
		`a\.git`, `.git\a`, `a\git~1\b`, `a\b`, ".g\u200cit", ".g\u200cIt", "\u200c.git", ".git\ufeff", ".gıt", ".git\xff", ".gitx", ".gi", "..git", ".gitignore", ".gitmodules", "git", "x.git", " .git", "a:.git",
	}
	for _, name := range names {
		repo.Index = filepath.Join(t.TempDir(), "index")
		if err := repo.Pipe(t.Context(), strings.NewReader("100644 "+id+"\t"+name+"\x00"), nil, "update-index", "-z", "--index-info"); err != nil {
			t.Fatal(err)
		}
		listed, err := repo.Output(t.Context(), "ls-files", "-z")
		if err != nil {
			t.Fatal(err)
		}
		// git takes names of HFS+ only where it runs on it, but refuses to
		// check them out there: we refuse them everywhere.
		refused := listed == "" || strings.Contains(name, "\u200c") || strings.Contains(name, "\ufeff")
		if got := IsGitDir(name); got != refused {
			t.Errorf("%q: got %v, git refuses it: %v", name, got, refused)
		}
	}
}

func TestReadIndex(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		dir := t.TempDir()
		if out, err := exec.Command("git", "init", "-q", "--object-format="+format, dir).CombinedOutput(); err != nil {
			t.Fatalf("git init: %v: %s", err, out)
		}
		for i := range 9 { // all lengths of padding
			name := filepath.Join(dir, strings.Repeat("n", i+1))
			if err := os.WriteFile(name, []byte(name), 0o644+os.FileMode(i%2)*0o111); err != nil {
				t.Fatal(err)
			}
		}
		repo := Repo{Dir: filepath.Join(dir, ".git"), WorkTree: dir}
		if err := repo.Run(t.Context(), "add", "-A"); err != nil {
			t.Fatal(err)
		}
		entries, _, err := ReadIndex(filepath.Join(dir, ".git/index"))
		if err != nil || len(entries) != 9 {
			t.Fatalf("%s: got %d entries, err %v", format, len(entries), err)
		}
		var got strings.Builder
		for _, e := range entries {
			mode := map[uint32]string{ModeFile: "100644", ModeExec: "100755"}[e.Mode]
			got.WriteString(mode + " " + e.Object + " 0\t" + e.Path + "\n")
			info, err := os.Stat(filepath.Join(dir, e.Path))
			if err != nil || !info.ModTime().Equal(e.Stat.MTime) || uint32(info.Size()) != e.Stat.Size {
				t.Errorf("%s: stat of %s: got %v, file has %v", format, e.Path, e.Stat, info.ModTime())
			}
		}
		want, err := repo.Output(t.Context(), "ls-files", "-s")
		if err != nil || strings.TrimSuffix(got.String(), "\n") != want {
			t.Errorf("%s: got\n%s\nwant\n%s, err %v", format, got.String(), want, err)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x01" + strings.Repeat("\x00", 80)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, size := range []int{20, 32} {
			entries, err := parseIndex(data, size)
			if err != nil && entries != nil {
				t.Errorf("got %d entries and an error", len(entries))
			}
		}
	})
}

func TestPipeStopsWhenOutputIsRefused(t *testing.T) {
	refuse := errors.New("enough")
	repo := Repo{Dir: t.TempDir()}
	err := repo.Pipe(t.Context(), nil, writerFunc(func([]byte) (int, error) { return 0, refuse }), "version")
	if !errors.Is(err, refuse) {
		t.Errorf("got %v, want %v", err, refuse)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestCancelEndsGitAndItsHelpers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	script := filepath.Join(t.TempDir(), "ssh")
	if err := exectest.WriteFile(script, []byte("#!/bin/sh\nsleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	remote := Remote{URL: "ssh://example.org/x", Env: []string{"GIT_SSH=" + script, "PATH=" + os.Getenv("PATH")}}
	_, _, err := remote.List(ctx, t.TempDir())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a passed deadline", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v: a helper kept git's pipe open", took)
	}
}

func TestOperatorEnvironment(t *testing.T) {
	got := strings.Join(operator([]string{"HOME=/h", "GIT_DIR=/evil", "GIT_INDEX_FILE=/x", "GIT_SSH_COMMAND=mine", "GIT_CONFIG_COUNT=0", "GIT_EXTERNAL_DIFF=x"}), " ")
	for _, want := range []string{"HOME=/h", "GIT_SSH_COMMAND=mine", "GIT_CONFIG_COUNT=0"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	for _, unwanted := range []string{"GIT_DIR", "GIT_INDEX_FILE", "EXTERNAL"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("got %q, want no %s", got, unwanted)
		}
	}
}

func TestMissingGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Repo{Dir: t.TempDir()}.Pipe(t.Context(), nil, &bytes.Buffer{}, "version")
	if err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("got %v, want a word about installing git", err)
	}
}

// TestWriteIndex: git reads what we write, and so do we.
func TestWriteIndex(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			repo := Repo{Dir: filepath.Join(t.TempDir(), "repo.git"), Index: filepath.Join(t.TempDir(), "index")}
			if out, err := exec.Command("git", "init", "-q", "--bare", "--object-format="+format, repo.Dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			blob := strings.Repeat("a1", map[string]int{"sha1": 20, "sha256": 32}[format])
			want := []Entry{{Path: "a b", Mode: ModeFile}, {Path: "a/" + strings.Repeat("x", 5000), Mode: ModeExec}, {Path: "a\n\xff", Mode: ModeLink}, {Path: "m", Mode: ModeModule}}
			for n := range 9 { // every length of padding
				want = append(want, Entry{Path: "z" + strings.Repeat("z", n), Mode: ModeFile})
			}
			for i := range want {
				want[i].Object = blob
			}
			mixed := slices.Clone(want)
			slices.Reverse(mixed)
			if err := WriteIndex(repo.Index, mixed); err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(want, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
			var list, said strings.Builder
			for i, e := range want {
				fmt.Fprintf(&list, "%06o %s 0\t%s\x00", e.Mode, e.Object, e.Path)
				want[i].Stat = Stat{CTime: time.Unix(0, 0), MTime: time.Unix(0, 0)}
			}
			if err := repo.Pipe(t.Context(), nil, &said, "ls-files", "-s", "-z"); err != nil || said.String() != list.String() {
				t.Errorf("git reads %q, err %v, want %q", said.String(), err, list.String())
			}
			got, _, err := ReadIndex(repo.Index)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, err %v, want %v", got, err, want)
			}
		})
	}
}
