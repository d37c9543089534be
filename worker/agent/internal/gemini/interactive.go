package gemini

import (
	"cmp"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/acp"
)

// interactive is the plan of an interactive job.
//
// The program reads the repository's settings whenever it makes a session, by then in a directory
// that it trusts. It does not when it loads one. So a session is always loaded: a new one from a
// file with one message, which startSession writes.
func interactive(l agent.Launch) agent.Plan {
	args := []string{"--acp", "--skip-trust"}
	if !l.HasFlag("--approval-mode") {
		args = append(args, "--approval-mode", "yolo") // until a person sets another mode
	}
	if model := l.Job.Agent.Model; model != "" {
		args = append(args, "--model", model)
	}
	ends := ""
	if len(l.Job.Agent.MCPServers) > 0 {
		ends = endInput
	}
	return agent.Plan{
		Args: l.WithSkills(skillsDir, slices.Concat([]string{"/bin/sh", "-c", startScript + startSession + ends + start, "gemini"}, l.Program.Command("gemini"), args, l.Job.Agent.Args)),
		Env: []string{
			"PENSTOCK_GEMINI_SESSION=" + sessionOf(l),
			"PENSTOCK_GEMINI_REPLAY_END=" + replayEnd(l),
			"PENSTOCK_GEMINI_VARIABLES=" + strings.Join(l.MCPVariables(), " "),
		},
		Stdin: [][]byte{acp.Hello()}, KeepStdin: true,
	}
}

// startSession prepares the session that the program loads.
//
// A conversation of a job that took one prompt has a name that the program, which begins a file of
// the same id before it loads one, would give again within the same minute: it gets another.
// Processes that continued it have begun a file each, too, and have gone on in the first: the others
// are removed.
//
// The program replays a session's messages while it takes prompts already. The last one marks
// the end. Its slash keeps it from the model, and from the file that the program goes on with.
//
// The program keeps variables that look secret from servers, but none of its own.
const startSession = `
chats="$HOME/.gemini/tmp/penstock/chats"; chat="$chats/session-$PENSTOCK_GEMINI_SESSION.jsonl"
if [ ! -s "$chat" ]; then
	earlier=$(grep -ls "\"sessionId\":\"$PENSTOCK_GEMINI_SESSION\"" "$chats"/session-*.jsonl | head -n 1)
	if [ -n "$earlier" ]; then mv "$earlier" "$chat"; else
		printf '{"sessionId":"%s","projectHash":"penstock","kind":"main"}\n{"id":"penstock","type":"user","content":"` + opening + `"}\n' "$PENSTOCK_GEMINI_SESSION" >"$chat"
	fi
fi
rm -f "$chats"/session-*-"${PENSTOCK_GEMINI_SESSION%%-*}".jsonl
[ -z "$(tail -c 1 "$chat")" ] || echo >>"$chat"
printf '{"id":"%s","type":"user","content":"%s"}\n' "$PENSTOCK_GEMINI_REPLAY_END" "$PENSTOCK_GEMINI_REPLAY_END" >>"$chat"
for name in $PENSTOCK_GEMINI_VARIABLES; do eval "export ` + variablePrefix + `$name=\"\$$name\""; done`

const (
	opening        = "My requests follow, one in each message."
	variablePrefix = "GEMINI_CLI_PENSTOCK_"
)

// endInput ends a program that does not end with its input, because the servers of its session
// run: they would, with it.
const endInput = `
input="$HOME/.gemini/input"; rm -f "$input"; mkfifo "$input"
exec 3<&0
{ cat <&3 >"$input"; sleep 3; kill $$; } >/dev/null 2>&1 &
exec 3<&- <"$input"`

func sessionOf(l agent.Launch) string { return cmp.Or(l.Resume, l.NewSession()) }

func replayEnd(l agent.Launch) string { return "/penstock " + l.PromptID() }

// decoderOf decodes an interactive run.
func decoderOf(l agent.Launch) agent.Decoder {
	l.Resume = sessionOf(l)
	variables := map[string]string{}
	for _, name := range l.MCPVariables() {
		variables[name] = "$" + variablePrefix + name
	}
	return acp.NewDecoder(l, acp.Options{
		Name: "gemini", Model: l.Job.Agent.Model, ReplayEnd: replayEnd(l), Plain: promptText, Variables: variables,
		Subagents:  "invoke_agent__",
		ShowsInput: []string{"execute", "edit"}, // it cuts those of servers
	})
}
