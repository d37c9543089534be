package claude

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

func TestClaudePlan(t *testing.T) {
	l := adaptertest.Launch("claude")
	l.Job.Agent.Model, l.Job.Agent.Effort, l.Job.Agent.MaxTurns, l.Job.Budget.USD = "opus", "max", 12, 2.5
	l.Program = agent.Program{Args: []string{"/opt/claude"}, Mounts: []string{"/opt/claude"}}
	p := adaptertest.Plan(t, Adapter{}, l)
	for flag, want := range map[string]string{
		"--session-id": l.Session, "--model": "opus", "--effort": "max", "--max-turns": "12", "--max-budget-usd": "2.5",
		"--permission-prompt-tool": "stdio", "--setting-sources": "user", "--input-format": "stream-json",
	} {
		if got := adaptertest.FlagValue(p.Args, flag); got != want {
			t.Errorf("%s %q, want %q", flag, got, want)
		}
	}
	if p.Args[0] != "/opt/claude" || !slices.Contains(p.Mounts, "/opt/claude") || !p.KeepStdin {
		t.Errorf("plan %+v", p)
	}
	for _, want := range []string{"ANTHROPIC_BASE_URL=http://127.0.0.1:3128", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1"} {
		if !slices.Contains(p.Env, want) {
			t.Errorf("no %q in the environment", want)
		}
	}
	var in userLine
	if err := json.Unmarshal(p.Stdin[0], &in); err != nil || in.Message.Content != "Fix the typo" || in.Message.Role != "user" {
		t.Errorf("prompt %s, err %v", p.Stdin[0], err)
	}
	again := adaptertest.Plan(t, Adapter{}, l)
	l.Mode = "plan" // as a person has set it in an earlier process
	if set := adaptertest.Plan(t, Adapter{}, l).Stdin; len(set) != 2 || !strings.Contains(string(set[0]), `"mode":"plan"`) || string(set[1]) != string(p.Stdin[0]) {
		t.Errorf("in another mode it reads %s first", set)
	}
	if !slices.Equal(p.Args, again.Args) || !slices.Equal(p.Env, again.Env) || string(p.Stdin[0]) != string(again.Stdin[0]) {
		t.Error("the same launch gives two plans")
	}
}

// An id of a session that exists is refused by the program, so each attempt
// has its own, always the same one.
func TestClaudeSessions(t *testing.T) {
	first := adaptertest.Launch("claude")
	second, follow, resumed := first, first, first
	second.Attempt = 2
	follow.ID = "01890000-0000-7000-8000-000000000002"
	resumed.Resume = "earlier"
	seen := map[string]bool{}
	for _, l := range []agent.Launch{first, second, follow} {
		id := adaptertest.FlagValue(adaptertest.Plan(t, Adapter{}, l).Args, "--session-id")
		if uuid.Validate(id) != nil || seen[id] {
			t.Errorf("session %q is none, or taken", id)
		}
		seen[id] = true
		if got := (Adapter{}).Decoder(l).Total().Session; got != id {
			t.Errorf("the decoder expects session %q, want %q", got, id)
		}
	}
	args := adaptertest.Plan(t, Adapter{}, resumed).Args
	if adaptertest.FlagValue(args, "--resume") != "earlier" || slices.Contains(args, "--session-id") {
		t.Errorf("resumed with %q", args)
	}
}

// What a job says about settings replaces what is the default.
func TestClaudeTrust(t *testing.T) {
	l := adaptertest.Launch("claude")
	l.Job.Agent.Args = []string{"--setting-sources=user,project", "--mcp-config", "x.json"}
	args := adaptertest.Plan(t, Adapter{}, l).Args
	if slices.Contains(args, "--setting-sources") || slices.Contains(args, "--strict-mcp-config") {
		t.Errorf("arguments %q", args)
	}
	if !slices.Equal(args[len(args)-3:], l.Job.Agent.Args) {
		t.Errorf("the job's arguments are not last: %q", args)
	}
}

// A prompt that begins with a slash would be run as a command of the program.
func TestClaudeSlash(t *testing.T) {
	for _, prompt := range []string{"/clear", "  /clear", "\n/cost now"} {
		var in userLine
		if err := json.Unmarshal(userMessage(prompt, ""), &in); err != nil {
			t.Fatal(err)
		}
		if content, _ := in.Message.Content.(string); strings.HasPrefix(strings.TrimSpace(content), "/") || !strings.HasSuffix(content, prompt) {
			t.Errorf("%q is told as %q", prompt, in.Message.Content)
		}
	}
}

// The program ignores an effort that it cannot be set to while it runs, so it is refused.
func TestEffortsWhileItRuns(t *testing.T) {
	speaker := Adapter{}.Decoder(adaptertest.Launch("claude")).(agent.Speaker)
	lines, err := speaker.Set("a", control.Settings{Effort: "high"})
	if err != nil || len(lines) != 1 || !strings.Contains(string(lines[0]), `{"settings":{"effortLevel":"high"},"subtype":"apply_flag_settings"}`) {
		t.Errorf("got %s, %v", lines, err)
	}
	for _, effort := range []string{"max", "enormous"} {
		var refused *control.RefusedError
		if lines, err := speaker.Set("b", control.Settings{Model: "m", Effort: effort}); !errors.As(err, &refused) || refused.Code != control.Cannot || lines != nil {
			t.Errorf("%s: %s, %v", effort, lines, err)
		}
	}
}
