package opencode

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

func TestOpencodePlan(t *testing.T) {
	l := adaptertest.Launch("opencode")
	l.Job.Prompt, l.Job.Agent.Model = "--help\nme", "claude-new"
	p := adaptertest.Plan(t, Adapter{}, l)
	if string(p.Stdin[0]) != l.Job.Prompt || p.KeepStdin || slices.Contains(p.Args, l.Job.Prompt) {
		t.Errorf("plan %+v", p)
	}
	if adaptertest.FlagValue(p.Args, "--model") != "anthropic/claude-new" || adaptertest.FlagValue(p.Args, "--title") != l.ID || slices.Contains(p.Args, "--session") {
		t.Errorf("arguments %q", p.Args)
	}
	var cfg struct {
		Only     []string `json:"enabled_providers"`
		Provider map[string]struct {
			Options struct{ BaseURL, APIKey string }
			Models  map[string]any
		}
	}
	i := slices.IndexFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "OPENCODE_CONFIG_CONTENT=") })
	if err := json.Unmarshal([]byte(strings.TrimPrefix(p.Env[i], "OPENCODE_CONFIG_CONTENT=")), &cfg); err != nil {
		t.Fatal(err)
	}
	to := cfg.Provider["anthropic"]
	if to.Options.BaseURL != l.Gate+"/v1" || to.Options.APIKey != l.Key || to.Models["claude-new"] == nil || !slices.Equal(cfg.Only, []string{"anthropic"}) {
		t.Errorf("settings %+v", cfg)
	}
	l.Resume, l.Job.Agent.Model = "ses_1", "anthropic/claude-old"
	if args := adaptertest.Plan(t, Adapter{}, l).Args; adaptertest.FlagValue(args, "--session") != "ses_1" || adaptertest.FlagValue(args, "--model") != "anthropic/claude-old" || slices.Contains(args, "--title") {
		t.Errorf("resumed with %q", args)
	}
}

// The job's skills are where a setting leads, in each process, and no repository's are beside them.
func TestOpencodeIsLedToSkills(t *testing.T) {
	const alone = "OPENCODE_DISABLE_EXTERNAL_SKILLS=1"
	l := adaptertest.Launch("opencode")
	if env := adaptertest.Plan(t, Adapter{}, l).Env; slices.Contains(env, alone) {
		t.Errorf("a job without skills has %q", env)
	}
	l.Job.Agent.Skills = map[string]jobs.Skill{"tide": {Files: map[string]string{jobs.SkillFile: "x"}}}
	for _, interactive := range []bool{false, true} {
		for _, resume := range []string{"", "ses_1"} {
			l.Job.Agent.Interactive, l.Resume = interactive, resume
			p := adaptertest.Plan(t, Adapter{}, l)
			var cfg struct{ Skills struct{ Paths []string } }
			i := slices.IndexFunc(p.Env, func(kv string) bool { return strings.HasPrefix(kv, "OPENCODE_CONFIG_CONTENT=") })
			err := json.Unmarshal([]byte(strings.TrimPrefix(p.Env[i], "OPENCODE_CONFIG_CONTENT=")), &cfg)
			if err != nil || !slices.Equal(cfg.Skills.Paths, []string{l.Files + "/skills"}) || !slices.Contains(p.Env, alone) {
				t.Errorf("interactive %v, resumed %q: %v, %+v, %q", interactive, resume, err, cfg, p.Env)
			}
		}
	}
}

func TestOpencodeVerdicts(t *testing.T) {
	const begun = `{"type":"step_start","sessionID":"ses_1"}` + "\n"
	finished := func(reason string) string { return begun + `{"type":"step_finish","part":{"reason":"` + reason + `"}}` }
	failed := func(name, status string) string {
		return `{"type":"error","error":{"name":"` + name + `","data":{"message":"m","statusCode":` + status + `}}}`
	}
	for _, tt := range []struct {
		name, lines string
		code        int
		reason      jobs.Reason
	}{
		{"a good turn", finished("stop"), 0, ""},
		{"a good turn, then killed", finished("stop"), 137, ""},
		{"an answer that was cut off", finished("length"), 0, jobs.AgentFailed},
		{"no word after a tool", finished("tool-calls"), 0, jobs.AgentCrashed},
		{"nothing", "", 0, jobs.AgentProtocol},
		{"a bad key", failed("APIError", "401"), 1, jobs.Unauthorized},
		{"no key", failed("ProviderAuthError", "0"), 1, jobs.Unauthorized},
		{"no such model", failed("ProviderModelNotFoundError", "0"), 1, jobs.ModelNotFound},
		{"too many", failed("APIError", "429"), 1, jobs.RateLimited},
		{"refused", begun + failed("APIError", "400"), 1, jobs.AgentFailed},
		{"not found", "", 127, jobs.AgentMissing},
	} {
		d := Adapter{}.Decoder(adaptertest.Launch("opencode"))
		adaptertest.Feed(d, strings.Split(tt.lines, "\n")...)
		if _, end := d.Exit(tt.code, ""); end.Reason != tt.reason || (end.Outcome == jobs.Success) != (tt.reason == "") {
			t.Errorf("%s: %+v", tt.name, end)
		}
	}
}
