package agent

// serverName is the agents' name for the MCP server of their jail's terminals, and
// terminalServer is the command that starts it, after the name of this program.
const serverName = "penstock"

var terminalServer = []string{"terminals"}
