package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// serversDir is the directory of the scripts that start MCP servers, under Launch.Files.
const serversDir = "mcp"

// An MCPServer is a server of the job, as the agent starts it.
type MCPServer struct {
	Name    string
	Command string
	Args    []string
}

// MCPServers are the job's servers, in the order of their names. Each is started by a
// script among the plan's files: agents expand variables and templates in commands that
// they read, each in another way, and in the arguments of a shell's script none does.
func (l Launch) MCPServers() []MCPServer {
	var servers []MCPServer
	for _, name := range slices.Sorted(maps.Keys(l.Job.Agent.MCPServers)) {
		servers = append(servers, MCPServer{Name: name, Command: "/bin/sh", Args: []string{l.Files + "/" + serversDir + "/" + name}})
	}
	return servers
}

// MCPVariables are the names of the variables that servers get from their agent, for agents that
// give them only those that they are told: the job's own and its secrets, and the way to the worker
// for those that have a URL.
func (l Launch) MCPVariables() []string {
	names := slices.Concat(slices.Collect(maps.Keys(l.Job.Env)), l.Job.Secrets)
	if l.HasRemoteServers() {
		names = append(names, l.Variable)
	}
	slices.Sort(names)
	return append([]string{}, slices.Compact(names)...)
}

// HasRemoteServers reports whether a server of the job has a URL. The agent starts a program that
// sends its messages to the worker.
func (l Launch) HasRemoteServers() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.Job.Agent.MCPServers)), func(s jobs.MCPServer) bool { return s.URL != "" })
}

// serversFile is a file under Launch.Files that names MCP servers, for agents that read such a one.
const serversFile = "mcp.json"

// namesServers reports whether a job gives its agent any servers of tools.
func namesServers(a jobs.Agent) bool { return a.Terminals || len(a.MCPServers) > 0 }

// serversConfig names the job's servers, and that of terminals, as many agents read it of their user. The type and the
// list of tools are what GitHub Copilot CLI wants to see.
func serversConfig(l Launch) []byte {
	variables := map[string]string{}
	for _, name := range l.MCPVariables() {
		variables[name] = "${" + name + "}" // otherwise an agent may keep them from its servers
	}
	servers := map[string]any{}
	add := func(name, command string, args []string) {
		servers[name] = map[string]any{"type": "local", "command": command, "args": args, "env": variables, "tools": []string{"*"}}
	}
	if l.Job.Agent.Terminals {
		variables[l.Variable] = "${" + l.Variable + "}"
		name, args := l.TerminalServer()
		add(name, "penstock", args)
	}
	for _, s := range l.MCPServers() {
		add(s.Name, s.Command, s.Args)
	}
	config, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		panic(err) // strings only
	}
	return config
}

// serverScripts are the scripts that start the servers.
func (l Launch) serverScripts() []File {
	var files []File
	for _, name := range slices.Sorted(maps.Keys(l.Job.Agent.MCPServers)) {
		server := l.Job.Agent.MCPServers[name]
		if server.URL != "" {
			server = jobs.MCPServer{Command: "penstock", Args: []string{"mcp-bridge", name}}
		}
		var b strings.Builder
		for _, variable := range slices.Sorted(maps.Keys(server.Env)) {
			b.WriteString("export " + variable + "=" + shellQuoted(server.Env[variable]) + "\n")
		}
		b.WriteString("exec " + shellQuoted(server.Command))
		for _, arg := range server.Args {
			b.WriteString(" " + shellQuoted(arg))
		}
		files = append(files, File{Path: serversDir + "/" + name, Content: []byte(b.String() + "\n")})
	}
	return files
}

// shellQuoted is a text as one word of a shell.
func shellQuoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
