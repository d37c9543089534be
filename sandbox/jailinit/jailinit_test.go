package jailinit

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Args[0] == Path {
		os.Stdout.WriteString("main of the host's program\n")
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "replaced" {
		replaced()
	}
	goleak.VerifyTestMain(m)
}

// replaced puts another file in the place of this program, and prints what
// Executable says to that.
func replaced() {
	self, err := os.Executable()
	if err == nil {
		err = os.WriteFile(self+".new", []byte("#!/bin/sh\n"), 0o755)
	}
	if err == nil {
		err = os.Rename(self+".new", self)
	}
	if err == nil {
		_, err = Executable()
	}
	if err != nil {
		os.Stdout.WriteString(err.Error())
	}
	os.Exit(0)
}

func TestConfigSurvivesTheWay(t *testing.T) {
	c := Config{
		Args: []string{"sh", "-c", "\x01\xff\n"}, Env: []string{"A=", "B=\xfe"}, Dir: "/w", Listen: []string{"[::1]:1024"},
		OpenFiles: 1 << 40, FileSize: 7, Processes: 9, Writable: []string{"/w", ""}, Scoped: true, Supervise: true, Dial: true,
		View: []Mount{
			{Kind: KindFile, Target: "/etc/x", Data: []byte("a\x00b"), Mode: 0o640}, {Kind: KindMemory, Target: "/tmp", Mode: 0o1777, Size: 1 << 40},
			{Kind: KindBind, Source: "/given/0", Target: "/w", Writable: true},
		},
		Filter: []byte{6, 0, 0, 0, 0, 0, 255, 127}, nested: true,
	}
	got, err := decode(c.Encode())
	if err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, err %v, want %+v", got, err, c)
	}
	for n := range len(c.Encode()) {
		if _, err := decode(c.Encode()[:n]); err == nil {
			t.Errorf("the first %d bytes were accepted", n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Config{Args: []string{"a"}, Env: []string{"b"}}.Encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(b)
		if err != nil {
			return
		}
		if again, err := decode(c.Encode()); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v became %+v, err %v", c, again, err)
		}
	})
}

func TestAReplacedProgramIsNotExecuted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(again, b, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(again, "replaced").Output()
	if err != nil || !strings.Contains(string(out), "restart it") {
		t.Errorf("got %q, err %v", out, err)
	}
}
