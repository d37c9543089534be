package agent

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Env are the variables that every agent gets.
func (l Launch) Env() []string {
	env := []string{
		"PENSTOCK_JOB=" + l.ID,
		"PENSTOCK_SESSION=" + l.Session,
		"PENSTOCK_ATTEMPT=" + strconv.Itoa(l.Attempt),
		"PENSTOCK_ROUND=" + strconv.Itoa(l.Round),
		"PENSTOCK_WORKSPACE=" + l.Cwd,
		"PENSTOCK_PROMPT_FILE=" + l.Files + "/" + promptFile,
		"PENSTOCK_INPUT_DIR=" + l.Files + "/" + inputDir,
	}
	if l.Job.Agent.Model != "" {
		env = append(env, "PENSTOCK_MODEL="+l.Job.Agent.Model)
	}
	if l.Job.Agent.Effort != "" {
		env = append(env, "PENSTOCK_EFFORT="+l.Job.Agent.Effort)
	}
	if l.Job.Issue != nil {
		env = append(env, "PENSTOCK_ISSUE_FILE="+l.Files+"/"+issueFile)
	}
	if file := l.InstructionsFile(); file != "" {
		env = append(env, "PENSTOCK_INSTRUCTIONS_FILE="+file)
	}
	if dir := l.SkillsDir(); dir != "" {
		env = append(env, "PENSTOCK_SKILLS_DIR="+dir)
	}
	if len(l.Depends) > 0 {
		env = append(env, "PENSTOCK_DEPENDS_FILE="+l.Files+"/"+resultsOf, "PENSTOCK_DEPENDS_DIR="+l.Files+"/"+patchesOf)
	}
	return env
}

// gateVariables are the variables in which programs look for the base URL of a model
// API, and for their key.
var gateVariables = map[string][2]string{
	"anthropic": {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"},
	"openai":    {"OPENAI_BASE_URL", "OPENAI_API_KEY"},
	"google":    {"GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"},
}

// GateEnv points programs that use a model API to the gate: the Anthropic API, unless
// the gate leads to another one.
func (l Launch) GateEnv() []string {
	if l.Gate == "" {
		return nil
	}
	key := gateVariables[l.api()]
	return []string{
		key[0] + "=" + l.baseURL(),
		key[1] + "=" + l.Key,
		// A job with allowed hosts has a proxy as well; the gate is not
		// behind it.
		"NO_PROXY=127.0.0.1,localhost",
		"no_proxy=127.0.0.1,localhost",
	}
}

func (l Launch) api() string { return cmp.Or(l.API, "anthropic") }

// baseURL is the one of the model API, at the gate.
func (l Launch) baseURL() string {
	if l.api() == "openai" {
		return l.Gate + "/v1" // which the API's programs do not add
	}
	return l.Gate
}

// NewSession is an id for the agent's conversation, for programs that take one. It is the
// session's own id for the attempt that opens the session, and another id for each later
// attempt: the programs refuse an id that exists.
func (l Launch) NewSession() string {
	if l.ID == l.Session && l.Attempt <= 1 && uuid.Validate(l.Session) == nil {
		return l.Session
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("session/"+l.Session+"/"+l.ID+"/"+strconv.Itoa(l.Attempt))).String()
}

// HasFlag reports whether the job's own arguments have a flag, which then replaces the
// default.
func (l Launch) HasFlag(flag string) bool {
	return slices.ContainsFunc(l.Job.Agent.Args, func(arg string) bool { return arg == flag || strings.HasPrefix(arg, flag+"=") })
}

// TerminalServer is the agents' name for the MCP server of their jail's terminals, and
// the arguments with which this program is that server.
func (l Launch) TerminalServer() (name string, args []string) {
	return "penstock", []string{"terminals"}
}
