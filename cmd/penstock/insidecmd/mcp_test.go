package insidecmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/mcpstdio"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/worker"
)

// mcpAnswers are what the server of terminals answers to lines, by their ids.
func mcpAnswers(t *testing.T, lines ...string) map[string]string {
	t.Helper()
	var out bytes.Buffer
	err := mcpstdio.Serve(t.Context(), terminalServer(newTerminalTools(nil), "test"), strings.NewReader(strings.Join(lines, "\n")), &out)
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for line := range strings.Lines(out.String()) {
		var a struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		answers[string(a.ID)] = line
	}
	return answers
}

func mcpHello(version string) string {
	return `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{}}}`
}

// A client gets the version that it asks for, or the newest one.
func TestMCPVersions(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25", "1999-01-01": "2025-11-25",
	} {
		got := mcpAnswers(t, mcpHello(asked))[`"hello"`]
		for _, part := range []string{`"protocolVersion":"` + want + `"`, `"capabilities":{"tools":{}}`, `"name":"penstock-terminals"`} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s is not in %s", asked, part, got)
			}
		}
	}
}

// The tools and what they take are a contract with agents that were told of them.
func TestMCPTools(t *testing.T) {
	got := mcpAnswers(t, mcpHello("2025-06-18"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)["1"]
	var list struct {
		Result struct {
			Tools []struct {
				Name, Description string
				InputSchema       struct {
					Type       string
					Properties map[string]struct{ Description string }
					Required   []string
					Additional *bool `json:"additionalProperties"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		t.Fatal(err)
	}
	var tools []string
	for _, tool := range list.Result.Tools {
		schema := tool.InputSchema
		if tool.Description == "" || schema.Type != "object" || schema.Additional == nil || *schema.Additional {
			t.Errorf("tool %+v", tool)
		}
		for name, property := range schema.Properties {
			if property.Description == "" {
				t.Errorf("%s: %s is not described", tool.Name, name)
			}
		}
		tools = append(tools, fmt.Sprintf("%s %v of %v", tool.Name, schema.Required, slices.Sorted(maps.Keys(schema.Properties))))
	}
	want := []string{
		"terminal_close [terminal] of [terminal]", "terminal_create [] of [columns command rows]", "terminal_list [] of []",
		"terminal_read [terminal] of [from max_bytes terminal wait_seconds]", "terminal_write [terminal text] of [terminal text]",
	}
	if !slices.Equal(tools, want) {
		t.Errorf("got %q\nwant %q", tools, want)
	}
}

// A call that cannot be understood is the client's mistake; what a tool cannot
// do is told to the model.
func TestMCPCallsThatAreWrong(t *testing.T) {
	for _, c := range []struct{ params, want string }{
		{`"x"`, "-32602"}, {`{"name":"rm"}`, "-32602"},
		{`{"name":"terminal_read","arguments":{"terminal":"one"}}`, `"isError":true`},
		{`{"name":"terminal_close","arguments":{"terminal":1,"force":true}}`, `"isError":true`},
		{`{"name":"terminal_create","arguments":{"rows":70000}}`, `"isError":true`},
		{`{"name":"terminal_write","arguments":{"terminal":1,"text":"` + strings.Repeat("x", terminal.MaxInput+1) + `"}}`, `"isError":true`},
	} {
		got := mcpAnswers(t, mcpHello("2025-06-18"), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+c.params+"}")["1"]
		if !strings.Contains(got, c.want) {
			t.Errorf("%.80s: %s", c.params, got)
		}
	}
}

// A message of any length would be kept in memory.
func TestTerminalsCommandIsBounded(t *testing.T) {
	t.Setenv(worker.InsideVariable, "http://token@127.0.0.1:1")
	cmd := terminals(cli.Shell{In: strings.NewReader(strings.Repeat("x", mcpstdio.MaxLine+1)), Out: console.New(io.Discard, os.Getenv)})
	cmd.SetArgs([]string{}) // with nil it takes those of the test binary
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); cli.Code(err) != cli.ExitUsage || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("a line without an end: %v", err)
	}
}

func TestWholeCharacters(t *testing.T) {
	for _, c := range []struct {
		data        string
		limit, want int
	}{{"abc", 2, 2}, {"aé", 2, 1}, {"aé", 3, 3}, {"a\xe2\x82", 9, 1}, {"€€", 5, 3}, {"\xff\xff\xff", 9, 3}, {"", 5, 0}, {"\x82\x82\x82\x82", 4, 4}} {
		if got := wholeCharacters([]byte(c.data), c.limit); got != c.want {
			t.Errorf("%q, %d: %d, want %d", c.data, c.limit, got, c.want)
		}
	}
}
