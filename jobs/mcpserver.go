package jobs

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// MaxMCPServers is how many servers a job may give its agent.
const MaxMCPServers = 16

// An MCPServer is a program that the agent starts in its jail, and whose tools it uses by
// the Model Context Protocol over standard input and output. It has the job's variables
// and secrets, and Env besides.
type MCPServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// validateMCPServers: agents make names of tools of the servers' names, which model APIs
// bound to 64 characters.
func (j Job) validateMCPServers(found *InvalidError) {
	const field = "agent.mcp_servers"
	if len(j.Agent.MCPServers) > MaxMCPServers {
		found.add(field, fmt.Errorf("has %d servers, at most %d are allowed", len(j.Agent.MCPServers), MaxMCPServers))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Agent.MCPServers)) {
		s, of := j.Agent.MCPServers[name], field+"."+name
		switch {
		case !labelName().MatchString(name) || len(name) > 32:
			found.add(field, fmt.Errorf("%q is not a server's name: use up to 32 of a-z, 0-9 and single '-' between them", name))
			continue
		case name == "penstock":
			found.add(of, fmt.Errorf("is the name of the pool's own server; choose another name"))
		}
		switch {
		case s.Command == "":
			found.add(of+".command", fmt.Errorf("is missing: name the program that the agent starts"))
		case strings.HasPrefix(s.Command, "-") || strings.Contains(s.Command, "/") && !filepath.IsAbs(s.Command):
			found.add(of+".command", fmt.Errorf("%q is neither an absolute path nor a name to look up in PATH; a program of the repository is an argument: sh tools/server", s.Command))
		default:
			found.add(of+".command", noNUL(s.Command))
		}
		for i, arg := range s.Args {
			found.add(fmt.Sprintf("%s.args[%d]", of, i), noNUL(arg))
		}
		validateVariables(found, of+".env", s.Env)
	}
}
