package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

var (
	refName   = pattern(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)
	commitID  = pattern(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	envName   = pattern(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	wireName  = pattern(`^[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,199}\*?$`)
	fileName  = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	hostName  = pattern(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)
	repoURL   = pattern(`^(https?|ssh|git|file)://[^\s]+$`)
	labelName = pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	itemName  = pattern(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// maxURL bounds a repository's address, which is in the record, too.
const maxURL = 4096

// Validate reports everything that is wrong with the job, as an
// [*InvalidError]. It looks at the values only: whether the repository or the
// agent exists is for the worker to find out. Call it on a job that has its
// defaults.
func (j Job) Validate() error {
	found := &InvalidError{}
	j.validateNames(found)
	j.validateWork(found)
	j.validateSkills(found)
	j.validateMCPServers(found)
	j.validateRepo(found)
	j.validateDeliver(found)
	found.each("artifacts", j.Artifacts, MaxPatterns, checkPattern)
	found.each("check_reports", j.CheckReports, MaxPatterns, checkPattern)
	j.validateResultSchema(found)
	j.validateSandbox(found)
	j.validateEnvironment(found)
	j.validateBounds(found)
	j.validateTrace(found)
	j.validateSignature(found)
	j.validateSize(found)
	return found.orNil()
}

// validateSize bounds what is stored: a character that JSON escapes takes up to
// six bytes there.
func (j Job) validateSize(found *InvalidError) {
	stored, err := json.Marshal(j)
	if err == nil && len(stored) > MaxJobBytes {
		err = fmt.Errorf("is %d bytes long as it is stored, at most %d are allowed", len(stored), MaxJobBytes)
	}
	found.add("(job)", err)
}

func (j Job) validateNames(found *InvalidError) {
	found.add("queue", CheckToken("queue", j.Queue))
	j.validateNeeds(found)
	found.add("priority", oneOf(j.Priority, High, Normal, Low))
	if j.Batch != "" {
		found.add("batch", CheckToken("batch", j.Batch))
	}
	if j.Item != "" && !itemName().MatchString(j.Item) {
		found.add("item", fmt.Errorf("%q is not a name: use up to 128 of A-Z, a-z, 0-9, '.', '_' and '-'", j.Item))
	}
	if j.Session != "" && uuid.Validate(j.Session) != nil {
		found.add("session", fmt.Errorf("%q is not a session's id (a UUID)", j.Session))
	}
	found.each("depends_on", j.DependsOn, MaxDepends, checkJobID)
	found.add("key", text(j.Key, 256))
	if len(j.Labels) > MaxLabels {
		found.add("labels", fmt.Errorf("has %d labels, at most %d are allowed", len(j.Labels), MaxLabels))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Labels)) {
		if !fileName().MatchString(name) {
			found.add("labels", fmt.Errorf("%q is not a label's name", name))
		}
		found.add("labels."+name, text(j.Labels[name], 256))
	}
}

// validateNeeds: queue and needs together name the class, from which both can
// be read again.
func (j Job) validateNeeds(found *InvalidError) {
	if strings.Contains(j.Queue, "--") || strings.HasSuffix(j.Queue, "-") {
		found.add("queue", fmt.Errorf(`%q has "--" in it, or "-" at its end`, j.Queue))
	}
	for i, need := range j.Needs {
		if !labelName().MatchString(need) {
			found.add(fmt.Sprintf("needs[%d]", i), fmt.Errorf("%q is not a worker's label: use a-z, 0-9 and single '-' between them", need))
		}
	}
	if len(j.needed()) > 0 && len(j.class()) > 63 {
		found.add("needs", fmt.Errorf("with the agent's version and the queue's name are too long together: %d bytes, at most 63 are allowed", len(j.class())))
	}
}

func (j Job) validateWork(found *InvalidError) {
	switch {
	case j.Agent.Name == "":
		found.add("agent.name", fmt.Errorf(`is missing: name an agent ("claude"), or give a command`))
	default:
		found.add("agent.name", CheckToken("agent.name", j.Agent.Name))
	}
	if j.Agent.Name == "command" && len(j.Agent.Command) == 0 {
		found.add("agent.command", fmt.Errorf(`is missing: the agent "command" runs the program given here`))
	}
	if j.Agent.Name != "command" && len(j.Agent.Command) > 0 {
		found.add("agent.command", fmt.Errorf(`is for the agent "command", not for %q`, j.Agent.Name))
	}
	switch {
	case j.Agent.Version == "":
	case j.Agent.Name == "command":
		found.add("agent.version", fmt.Errorf(`is for agents that are installed, not for the program of agent "command"`))
	default:
		found.add("agent.version", CheckAgentVersion(j.Agent.Version))
	}
	if j.Prompt == "" && j.Issue == nil && j.Agent.Name != "command" {
		found.add("prompt", fmt.Errorf("is missing: describe the work for the agent, or give an issue"))
	}
	for i, s := range slices.Concat(j.Agent.Command, j.Agent.Args) {
		found.add(fmt.Sprintf("agent.command[%d]", i), noNUL(s))
	}
	found.add("prompt", noNUL(j.Prompt))
	found.add("agent.model", text(j.Agent.Model, 256))
	found.add("agent.effort", text(j.Agent.Effort, 64))
	found.add("agent.instructions", checkInstructions(j.Agent.Instructions))
	seen := map[string]bool{}
	for i, f := range j.Files {
		field := fmt.Sprintf("files[%d].name", i)
		if !fileName().MatchString(f.Name) {
			found.add(field, fmt.Errorf("%q is not a plain file name", f.Name))
		}
		if seen[f.Name] {
			found.add(field, fmt.Errorf("%q is there twice", f.Name))
		}
		seen[f.Name] = true
	}
}

var errCredentials = errors.New("has a password or a token in it, and addresses are stored and shown: leave it out, and give it to the worker's git, " +
	"by a credential helper or an ssh key (docs/how-to/private-repositories.md); a value that was submitted somewhere should be replaced")

func (j Job) validateRepo(found *InvalidError) {
	r := j.Repo
	found.add("isolation", oneOf(j.Isolation, IsolationNone, IsolationWorktree, IsolationContainer))
	switch {
	case r.URL == "" && j.Isolation != IsolationNone:
		found.add("repo.url", fmt.Errorf("is missing: give a URL or an absolute path, or isolation %q for an empty directory", IsolationNone))
	case r.URL == "":
	case HasCredentials(r.URL):
		found.add("repo.url", errCredentials)
	case len(r.URL) > maxURL:
		found.add("repo.url", text(r.URL, maxURL))
	case strings.ContainsAny(r.URL, "\x00\n\r") || strings.HasPrefix(r.URL, "-") || !utf8.ValidString(r.URL):
		found.add("repo.url", fmt.Errorf("%q is not a URL or path", r.URL))
	case j.Isolation == IsolationNone && !filepath.IsAbs(r.URL):
		found.add("repo.url", fmt.Errorf("%q must be an absolute path: isolation none works in the directory itself", r.URL))
	case !filepath.IsAbs(r.URL) && !repoURL().MatchString(r.URL) && !scpLike(r.URL):
		found.add("repo.url", fmt.Errorf("%q is neither an absolute path nor a URL (https, http, ssh, git, file)", r.URL))
	}
	if r.Ref != "" {
		found.add("repo.ref", checkRef(r.Ref))
	}
	if j.Parent != "" {
		found.add("parent", checkJobID(j.Parent))
	}
	switch {
	case j.FromSalvage == "":
	case checkJobID(j.FromSalvage) != nil:
		found.add("from_salvage", checkJobID(j.FromSalvage))
	case j.Isolation == IsolationNone:
		// The directory is the user's own, and has files that no salvage may replace.
		found.add("from_salvage", fmt.Errorf("has no meaning with isolation %q: apply it there, with penstock job salvage %s --apply DIR", j.Isolation, j.FromSalvage))
	}
	switch {
	case j.Fork == "":
	case checkJobID(j.Fork) != nil:
		found.add("fork", checkJobID(j.Fork))
	case j.Isolation == IsolationNone:
		found.add("fork", fmt.Errorf("has no meaning with isolation %q: two jobs would work in one directory", j.Isolation))
	case j.FromSalvage != "":
		found.add("fork", fmt.Errorf("and from_salvage exclude each other: a fork begins with the files of its conversation"))
	}
	if r.Commit != "" && !commitID().MatchString(r.Commit) {
		found.add("repo.commit", fmt.Errorf("%q is not a full commit id (40 or 64 hexadecimal digits)", r.Commit))
	}
}

func (j Job) validateSandbox(found *InvalidError) {
	s := j.Sandbox
	found.add("sandbox.backend", oneOf(s.Backend, "auto", "bwrap", "systemd", "oci", "seatbelt", "none"))
	found.add("sandbox.preset", oneOf(s.Preset, "strict", "browser", "debug", "offline"))
	found.add("sandbox.network", oneOf(s.Network, NetworkNone, NetworkAllowlist, NetworkFull))
	found.each("sandbox.allow_hosts", s.AllowHosts, MaxHosts, checkHost)
	if s.Preset == "offline" && s.Network != NetworkNone {
		found.add("sandbox.network", fmt.Errorf("%q contradicts preset offline", s.Network))
	}
	if len(s.AllowHosts) > 0 && s.Network != NetworkAllowlist {
		found.add("sandbox.allow_hosts", fmt.Errorf("has no meaning with network %q; use %q", s.Network, NetworkAllowlist))
	}
	l := s.Limits
	found.add("sandbox.limits.memory", within(l.Memory, 16<<20, 1<<50))
	found.add("sandbox.limits.disk", within(l.Disk, 1<<20, 1<<50))
	found.add("sandbox.limits.pids", within(l.PIDs, 4, 1<<20))
	found.add("sandbox.limits.cpu_weight", within(l.CPUWeight, 1, 10_000))
	found.add("sandbox.limits.inodes", within(l.Inodes, 1, 1<<40))
	found.add("sandbox.limits.output_rate", within(l.OutputRate, 1<<10, 1<<40))
	found.add("sandbox.limits.traffic", within(l.Traffic, 1<<10, 1<<50))
	found.add("sandbox.limits.connections", within(l.Connections, 1, 4096))
	for _, f := range []struct {
		field string
		set   bool
	}{{"traffic", l.Traffic != 0}, {"connections", l.Connections != 0}} {
		if f.set && s.Network != NetworkAllowlist {
			found.add("sandbox.limits."+f.field, fmt.Errorf("has no meaning with network %q; use %q", s.Network, NetworkAllowlist))
		}
	}
	if l.CPUs < 0 || l.CPUs > 4096 || l.CPUs != l.CPUs {
		found.add("sandbox.limits.cpus", fmt.Errorf("%v is not between 0 and 4096", l.CPUs))
	}
	container := j.Isolation == IsolationContainer
	switch {
	case container && j.Image == "":
		found.add("image", fmt.Errorf("is missing: isolation container needs an image"))
	case !container && j.Image != "":
		found.add("image", fmt.Errorf("has no meaning with isolation %q; use %q", j.Isolation, IsolationContainer))
	}
	if j.Image != "" && (strings.HasPrefix(j.Image, "-") || strings.ContainsAny(j.Image, " \t\n\x00")) {
		found.add("image", fmt.Errorf("%q is not an image's name", j.Image))
	}
}

func (j Job) validateEnvironment(found *InvalidError) {
	validateVariables(found, "env", j.Env)
	for i, name := range j.Secrets {
		if !envName().MatchString(name) {
			found.add(fmt.Sprintf("secrets[%d]", i), fmt.Errorf("%q is not a secret's name (A-Z, a-z, 0-9 and '_')", name))
		}
	}
	for i, command := range j.Setup {
		found.add(fmt.Sprintf("setup[%d]", i), noNUL(command))
	}
	for i, command := range j.Check {
		found.add(fmt.Sprintf("check[%d]", i), noNUL(command))
	}
}

func validateVariables(found *InvalidError, field string, env map[string]string) {
	if len(env) > MaxEnv {
		found.add(field, fmt.Errorf("has %d variables, at most %d are allowed", len(env), MaxEnv))
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case !envName().MatchString(name):
			found.add(field, fmt.Errorf("%q is not a variable's name", name))
		case strings.HasPrefix(name, "PENSTOCK_") || strings.HasPrefix(name, "LD_"):
			found.add(field+"."+name, fmt.Errorf("is set by the pool or would change the jail's first program; choose another name"))
		default:
			found.add(field+"."+name, noNUL(env[name]))
		}
	}
}

func (j Job) validateBounds(found *InvalidError) {
	found.add("timeout", within(time.Duration(j.Timeout), time.Second, 30*24*time.Hour))
	found.add("idle_timeout", within(time.Duration(j.IdleTimeout), time.Second, 30*24*time.Hour))
	j.Ask.validate(found)
	found.add("check_rounds", within(j.CheckRounds, 0, 20))
	if j.CheckRounds > 0 && len(j.Check) == 0 {
		found.add("check_rounds", fmt.Errorf("has no meaning without check"))
	}
	if len(j.CheckReports) > 0 && len(j.Check) == 0 {
		found.add("check_reports", fmt.Errorf("has no meaning without check"))
	}
	found.each("agent.allow_models", j.Agent.AllowModels, MaxAllowed, CheckAllowed)
	found.each("agent.allow_service_tiers", j.Agent.AllowServiceTiers, MaxAllowed, CheckAllowed)
	found.each("agent.allow_inference_geos", j.Agent.AllowInferenceGeos, MaxAllowed, CheckAllowed)
	found.each("agent.allow_betas", j.Agent.AllowBetas, MaxAllowed, CheckAllowed)
	found.each("agent.allow_file_ids", j.Agent.AllowFileIDs, MaxAllowed, CheckAllowed)
	found.each("agent.allow_container_ids", j.Agent.AllowContainerIDs, MaxAllowed, CheckAllowed)
	found.add("agent.max_turns", within(j.Agent.MaxTurns, 0, 10_000))
	found.add("retry.max_attempts", within(j.Retry.MaxAttempts, 1, MaxAttempts))
	found.add("budget.tokens", within(j.Budget.Tokens, 0, MaxTokens))
	found.add("budget.batch_tokens", within(j.Budget.BatchTokens, 0, MaxTokens))
	found.add("budget.usd", amount(j.Budget.USD))
	found.add("budget.on_spent", oneOf(j.Budget.OnSpent, "", SpentEnds, SpentParks))
	found.add("budget.batch_usd", amount(j.Budget.BatchUSD))
}

func checkJobID(id string) error {
	if uuid.Validate(id) != nil {
		return fmt.Errorf("%q is not a job's id (a UUID)", id)
	}
	return nil
}

// CheckAllowed refuses an entry of a list of what calls of models may ask for, as models and
// service tiers, that could mean something else than it says.
func CheckAllowed(name string) error {
	if !wireName().MatchString(name) {
		return fmt.Errorf("%.60q is no name as on the wire, nor the beginning of names with a *", name)
	}
	return nil
}

// amount refuses what no job may cost.
func amount(usd float64) error {
	if usd < 0 || usd != usd || usd > MaxUSD {
		return fmt.Errorf("%v is not an amount", usd)
	}
	return nil
}

// each checks the entries of a list, and that there are not too many.
func (e *InvalidError) each(field string, list []string, most int, check func(string) error) {
	if len(list) > most {
		e.add(field, fmt.Errorf("has %d entries, at most %d are allowed", len(list), most))
	}
	for i, entry := range list {
		e.add(fmt.Sprintf("%s[%d]", field, i), check(entry))
	}
}

// validateResultSchema checks the form only: a caller that has a library for
// schemas checks whether it is one.
func (j Job) validateResultSchema(found *InvalidError) {
	schema := bytes.TrimSpace(j.ResultSchema)
	switch {
	case len(schema) == 0:
	case len(schema) > MaxSchema:
		found.add("result_schema", fmt.Errorf("is %d bytes long, at most %d are allowed", len(schema), MaxSchema))
	case schema[0] != '{':
		found.add("result_schema", fmt.Errorf("is not a JSON object"))
	}
}

// checkPattern accepts what can name a file of a workspace.
func checkPattern(s string) error {
	if err := text(s, 512); err != nil {
		return err
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(s, "/"), "/") {
		_, bad := path.Match(part, "")
		switch {
		case part == "" || part == "." || part == "..":
			return fmt.Errorf("%q is not a path below the workspace: write out/report.xml, or out/*.xml", s)
		case strings.EqualFold(part, ".git"):
			return fmt.Errorf("%q is in a git directory, whose files are never kept", s)
		case bad != nil || part != "**" && strings.Contains(part, "**"):
			return fmt.Errorf("%q is not a pattern: use *, ? and [a-z] in a name, and ** alone for any number of directories", s)
		}
	}
	return nil
}

func oneOf[T ~string](got T, allowed ...T) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, a := range allowed {
		words[i] = string(a)
	}
	return fmt.Errorf("%q is not allowed; use %s", string(got), strings.Join(words, ", "))
}

// within accepts zero, which stands for the default, and low to high. The error
// shows sizes and durations in their units.
func within[T int | int64 | Bytes | time.Duration](got, low, high T) error {
	if got == 0 || low <= got && got <= high {
		return nil
	}
	return fmt.Errorf("%v is not between %v and %v", got, low, high)
}

func text(s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("is %d bytes long, at most %d are allowed", len(s), limit)
	}
	return noNUL(s)
}

// checkInstructions accepts text alone: each agent quotes it in another way, and control
// characters are what those ways do not share.
func checkInstructions(s string) error {
	control := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\n\r\t", r) }
	switch {
	case s == "":
		return nil
	case strings.TrimSpace(s) == "":
		return fmt.Errorf("has no text in it")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, control):
		return fmt.Errorf("has control characters or is not UTF-8")
	}
	return text(s, MaxInstructions)
}

func noNUL(s string) error {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		return fmt.Errorf("has a NUL byte or is not UTF-8")
	}
	return nil
}

// checkRef accepts the ref names that mean nothing to a shell, to git's
// revision syntax or to a path: a branch name is agent-controlled text later.
func checkRef(s string) error {
	if !refName().MatchString(s) || strings.Contains(s, "..") || strings.Contains(s, "//") ||
		strings.HasSuffix(s, "/") || strings.HasSuffix(s, ".lock") || strings.HasSuffix(s, ".") {
		return fmt.Errorf("%q is not a branch, tag or commit name", s)
	}
	return nil
}

// scpLike reports whether s has git's short ssh form, user@host:path.
func scpLike(s string) bool {
	host, path, ok := strings.Cut(s, ":")
	_, host, at := strings.Cut(host, "@")
	return ok && at && host != "" && path != "" && !strings.HasPrefix(host, "-") && !strings.ContainsAny(s, " \t")
}
