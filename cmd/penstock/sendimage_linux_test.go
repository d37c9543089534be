package main

import (
	"encoding/base64"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// dot is a PNG of one pixel.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

// file makes a file for a command to read.
func (f *fixture) file(name, content string) string {
	f.Helper()
	path := filepath.Join(f.TempDir(), name)
	f.must(os.WriteFile(path, []byte(content), 0o600))
	return path
}

// A screenshot reaches the real Claude Code, and once more after its worker was
// killed before the agent had looked at it.
func TestAScreenshotIsSent(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	model := agenttest.New(agenttest.Script{On: "LOOK", Steps: []agenttest.Step{
		agenttest.Say("begun"),
		func(r agenttest.Request) agenttest.Reply {
			// The worker is killed within this turn, so it hangs the first time.
			return agenttest.Reply{Text: "seen", Hang: r.Try == 0}
		},
	}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = []string{"ANTHROPIC_API_KEY=" + keyPrefix + "look", "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	f.serve()
	w := f.worker("--slots", "1")
	k := talk{f, strings.TrimSpace(f.run("submit", "LOOK", "--agent", "claude", "--interactive", "--repo", f.repo, "-o", "id"))}
	k.seen(jobs.CapsuleStored, 1) // from which the next attempt goes on
	f.run("send", k.id, "wait for it")
	k.before(model, 1) // else the next attempt's request were the first, and would hang

	data, err := base64.StdEncoding.DecodeString(dot)
	f.must(err)
	shot := f.file("shot.png", string(data))
	f.run("send", k.id, "what is wrong here?", "--image", shot)
	w.kill()
	f.worker("--slots", "1")
	k.has(k.seen(jobs.SessionContinued, 1), "resumed")
	f.eventually(60*time.Second, "the model sees the image", func() bool {
		return slices.ContainsFunc(model.Requests(), func(r agenttest.Request) bool {
			return slices.Contains(r.Images, "data:image/png;base64,"+dot)
		})
	})
	k.has(f.run("logs", k.id), "cli: what is wrong here? [1 image (image/png, 1 KiB)]")
	f.rests(k.id)
	f.run("job", "stop", k.id)
	f.run("wait", k.id, "--timeout", patience(60))
	k.has(f.run("watch", k.id), "cli: what is wrong here? [1 image (image/png, 1 KiB)]")
	f.refused(6, []string{"prompt without images"}, "send", k.id, "--image", shot)
	f.gapless(f.events(k.id))
}

// What is no image, or too large, is refused before anything is sent.
func TestImagesThatAreNotSent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit("sleep 60")
	f.eventually(60*time.Second, "it runs", func() bool { return f.record(id).State == jobs.Executing })
	gif := f.file("small.gif", "GIF89a")
	half := f.file("half.gif", "GIF89a"+strings.Repeat("x", control.MaxImageBytes/2))
	for _, tt := range []struct {
		name string
		code int
		says []string
		args []string
	}{
		{"no such file", 2, []string{"--image", "absent.png", "no such file"}, []string{"look", "--image", "absent.png"}},
		{"a directory", 2, []string{"--image", f.data}, []string{"look", "--image", f.data}},
		{"no image", 2, []string{"notes.png", "none of image/png", "hint: convert"}, []string{"look", "--image", f.file("notes.png", "hello")}},
		{"too large", 2, []string{"large.gif", "512KiB", "hint: scale it down"}, []string{"look", "--image", f.file("large.gif", "GIF89a"+strings.Repeat("x", control.MaxImageBytes))}},
		{"too large together", 2, []string{"together", "512KiB", "hint: scale"}, []string{"look", "--image", half, "--image", half}},
		{"too many", 2, []string{"5 images", "at most 4", "another message"}, []string{"look", "--image", gif, "--image", gif, "--image", gif, "--image", gif, "--image", gif}},
		{"neither text nor image", 2, []string{"[TEXT|-] is missing"}, nil},
		{"an agent that takes none", 6, []string{"takes one prompt"}, []string{"--image", gif}},
	} {
		t.Run(tt.name, func(*testing.T) { f.refused(tt.code, tt.says, append([]string{"send", id}, tt.args...)...) })
	}
	f.run("job", "stop", id)
}
