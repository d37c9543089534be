package agent

// serverName is what agents call the server of their jail's terminals, and
// terminalServer how it is started, after the name of this program.
const serverName = "penstock"

var terminalServer = []string{"terminals"}
