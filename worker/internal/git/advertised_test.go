package git

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// What one process lists of a local repository is what git ls-remote lists of it.
func TestLocalRefsAreThoseOfLsRemote(t *testing.T) {
	const commit = "git -c user.name=T -c user.email=t@example.com commit -q --allow-empty -m x"
	const tag = "git -c user.name=T -c user.email=t@example.com tag -a v1 -m x"
	for name, script := range map[string]string{
		"tags":     "git init -q -b main . && " + commit + " && " + tag + " && git branch other && git tag plain",
		"detached": "git init -q -b main . && " + commit + " && git checkout -q --detach",
		"packed":   "git init -q -b main . && " + commit + " && " + tag + " && git pack-refs --all",
		"unborn":   "git init -q -b main . && " + commit + " && git symbolic-ref HEAD refs/heads/nothing",
		"empty":    "git init -q -b main .",
		"sha256":   "git init -q --object-format=sha256 -b main . && " + commit,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("sh", "-c", "cd "+dir+" && "+script).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			names := []string{"refs/heads/main", "refs/tags/v1^{}", "refs/tags/v1", "refs/heads/no"}
			url := filepath.Join(dir, ".git")
			want, wantHead, err := Remote{URL: "file://" + url}.List(t.Context(), t.TempDir(), names...)
			if err != nil {
				t.Fatal(err)
			}
			got, gotHead, err := Remote{URL: url, Local: true}.List(t.Context(), t.TempDir(), names...)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) || gotHead != wantHead {
				t.Errorf("got %v and HEAD %q, want %v and %q", got, gotHead, want, wantHead)
			}
			if len(got) == 0 && name != "empty" {
				t.Error("nothing was listed")
			}
		})
	}
}

func TestAMalformedListOfRefsIsRefused(t *testing.T) {
	const id = "0123456789012345678901234567890123456789"
	for _, text := range []string{"", "000", "0003", "zzzz", "00ffabc", "0001", "003a" + id + " refs/heads/main\n"} {
		if refs, _, err := readAdvertisement([]byte(text)); err == nil {
			t.Errorf("%q: got %v, want an error", text, refs)
		}
	}
	refs, capabilities, err := readAdvertisement([]byte("0036" + id + " HEAD\x00a b\n0000"))
	if want := []Ref{{"HEAD", id}}; err != nil || !slices.Equal(refs, want) || capabilities != "a b\n" {
		t.Errorf("got %v, %q, %v", refs, capabilities, err)
	}
}
