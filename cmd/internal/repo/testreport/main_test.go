package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with one test file and makes it the working directory.
func module(tb testing.TB, tests string) {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "x_test.go": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Chdir(dir)
}

func TestRun(t *testing.T) {
	tests := []struct {
		name   string
		source string
		code   int
		want   []string
		not    []string
	}{
		{
			name: "skips are listed with their reasons",
			source: `package x
import "testing"
func TestGood(t *testing.T) { t.Log("chatter") }
func TestA(t *testing.T) { t.Log("looked around"); t.Skip("no jail here") }
func TestB(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Skip("no jail here") }) }
func TestC(t *testing.T) { t.SkipNow() }
`,
			want: []string{"ok  \texample", "2 tests passed, 0 failed, 3 skipped",
				"skipped: no jail here\n\texample: TestA, TestB/sub\n", "skipped: no reason given\n\texample: TestC\n"},
			not: []string{"chatter", "=== RUN"},
		},
		{
			name: "what took long is named, with its subtests",
			source: `package x
import ("testing"; "time")
func TestFast(t *testing.T) {}
func TestSlow(t *testing.T) {
	for range 2 {
		t.Run("sub", func(t *testing.T) { t.Parallel(); time.Sleep(3*time.Second) })
	}
}
`,
			want: []string{"what took longest:\n\t   6 s  example TestSlow\n\n4 tests"},
			not:  []string{"TestFast"},
		},
		{
			name:   "a failure is shown and is the exit code",
			source: "package x\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Error(\"got 1, want 2\") }\n",
			code:   1,
			want:   []string{"--- FAIL: TestBad", "got 1, want 2", "FAIL\texample", "0 tests passed, 1 failed"},
		},
		{
			name:   "a panic is shown",
			source: "package x\nimport \"testing\"\nfunc TestBad(t *testing.T) { panic(\"surprise\") }\n",
			code:   1,
			want:   []string{"panic: surprise", "FAIL\texample"},
		},
		{
			name:   "a killed test binary is shown",
			source: "package x\nimport (\"os\"; \"testing\")\nfunc TestBad(t *testing.T) { println(\"last words\"); os.Exit(3) }\n",
			code:   1,
			want:   []string{"last words", "FAIL\texample"},
		},
		{
			name:   "what does not compile is shown",
			source: "package x\nimport \"testing\"\nfunc TestBad(t *testing.T) { undefined() }\n",
			code:   1,
			want:   []string{"undefined: undefined", "FAIL\texample"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			module(t, tt.source)
			var out, errs bytes.Buffer
			if got := run(t.Context(), []string{"-count=1", "./..."}, &out, &errs); got != tt.code {
				t.Errorf("got exit code %d, want %d", got, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("got output\n%s%s\nwant %q in it", &out, &errs, want)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("got output\n%s\nwant no %q in it", &out, not)
				}
			}
		})
	}
}

func TestRunNamesWhatGoTestRefuses(t *testing.T) {
	module(t, "package x\n")
	var out, errs bytes.Buffer
	if got := run(t.Context(), []string{"-no-such-flag"}, &out, &errs); got == 0 {
		t.Errorf("got exit code 0 for an unknown flag, want another")
	}
	if got := errs.String() + out.String(); !strings.Contains(got, "no-such-flag") {
		t.Errorf("got %q, want the flag named", got)
	}
}
