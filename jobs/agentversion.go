package jobs

import (
	"fmt"
	"slices"
	"strings"
)

var (
	agentVersion = pattern(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	notInLabel   = pattern(`[^a-z0-9]+`)
)

// CheckAgentVersion reports why text is not the version of an agent: one version, as package
// registries have it, and no range or tag, because these mean something else tomorrow.
func CheckAgentVersion(text string) error {
	if len(text) > 64 || !agentVersion().MatchString(text) {
		return fmt.Errorf("%q is not a version: name one exactly, as 1.2.3 or 1.2.3-beta.4", text)
	}
	return nil
}

// VersionLabel is the label that workers have for a version of an agent that is installed on
// their host, and that jobs need which name it.
func VersionLabel(agent, version string) string {
	return "agent-" + strings.Trim(notInLabel().ReplaceAllString(strings.ToLower(agent+"-"+version), "-"), "-")
}

// needed are the labels that a worker must have: what the job names, and the version of its agent.
func (j Job) needed() []string {
	if j.Agent.Version == "" {
		return j.Needs
	}
	return append(slices.Clip(j.Needs), VersionLabel(j.Agent.Name, j.Agent.Version))
}
