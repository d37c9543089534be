package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/dispatcher/deliver"
	"github.com/penstock-run/penstock/dispatcher/forge"
	"github.com/penstock-run/penstock/dispatcher/hooks"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/modelkey"
	"github.com/penstock-run/penstock/worker/pricing"
)

// EnvPrefix begins the name of every variable that penstock reads, except
// those that name a provider's key, which have names of their own.
const EnvPrefix = "PENSTOCK_"

// Config holds every setting. Defaults are in [Defaults] and nowhere else.
type Config struct {
	Data          string        `yaml:"data" env:"DATA" doc:"directory for the embedded broker, caches and workspaces"`
	Server        string        `yaml:"server" env:"SERVER" doc:"NATS URL of the pool, or of a cluster, or the https:// address of its HTTP interface; empty uses the pool of the data directory"`
	Creds         string        `yaml:"creds" env:"CREDS" doc:"credentials file for the pool that runs on server or data; penstock nats credentials makes one"`
	TokenFile     string        `yaml:"token_file" env:"TOKEN_FILE" doc:"file with the token for a server of HTTP; penstock token add makes one"`
	TLSCA         string        `yaml:"tls_ca" env:"TLS_CA" doc:"authorities of the server's certificate, a PEM file; empty is the system's"`
	TLSClientCert string        `yaml:"tls_client_cert" env:"TLS_CLIENT_CERT" doc:"certificate of this client, a PEM file, where the server wants one"`
	TLSClientKey  string        `yaml:"tls_client_key" env:"TLS_CLIENT_KEY" doc:"its key, a PEM file"`
	SignKey       string        `yaml:"sign_key" env:"SIGN_KEY" doc:"ed25519 key that signs each job that is submitted, a PEM file; empty signs none"`
	Prefix        string        `yaml:"prefix" env:"PREFIX" doc:"prefix of every subject"`
	Tenant        string        `yaml:"tenant" env:"TENANT" doc:"tenant whose jobs are seen and submitted"`
	Replicas      int           `yaml:"replicas" env:"REPLICAS" doc:"servers of a cluster that keep each stream; 0 is as the pool has it, and 1 for a new one"`
	Policy        string        `yaml:"policy" env:"POLICY" doc:"file with what jails may touch and jobs may ask for; empty is no policy"`
	Lease         time.Duration `yaml:"lease" env:"LEASE" doc:"how long a worker may be silent before its jobs go to another"`
	MaxRefusals   int           `yaml:"max_refusals" env:"MAX_REFUSALS" doc:"how often a job may be lost to one reason of its model's provider, a limit of its rate or an API that is down, before it is given up"`
	Log           LogConfig     `yaml:"log" envPrefix:"LOG_"`
	Worker        WorkerConfig  `yaml:"worker" envPrefix:"WORKER_"`
	Serve         ServeConfig   `yaml:"serve" envPrefix:"SERVE_"`
	Model         ModelConfig   `yaml:"model" envPrefix:"MODEL_"`
	Keep          KeepConfig    `yaml:"retention" envPrefix:"RETENTION_"`
	// Agents are in files only: a variable could not hold them.
	Agents map[string]agent.Custom `yaml:"agents,omitempty" doc:"agents of one's own, by name: protocol, command, env, api, conversation, skills, mcp_config"`
	// Prices are in files only, too.
	Prices map[string]pricing.Price `yaml:"prices,omitempty" doc:"what models cost, by name, in US dollars for a million tokens: input, output, cache_read, cache_write, cache_write_hour, long_from, long, factors"`
	// Hooks are in files only, too.
	Hooks map[string]hooks.Rule `yaml:"hooks,omitempty" doc:"webhooks that become jobs, by name: source, secret_file, when, require, users, job"`
	// Webhooks say where the pool may send events.
	Webhooks deliver.Settings `yaml:"webhooks" envPrefix:"WEBHOOKS_"`
	// Forges say where the pool opens pull requests.
	Forges forge.Settings `yaml:"forges" envPrefix:"FORGES_"`

	// Token is the token itself. It has been removed from the environment, too.
	Token string `yaml:"-" env:"TOKEN" doc:"token for a server of HTTP, if token_file names none"`
	// The providers' keys have been removed from the environment before they are read;
	// see Load.
	AnthropicKey string `yaml:"-" env:"ANTHROPIC_API_KEY" doc:"key of the Anthropic API; it stays in the worker"`
	OpenAIKey    string `yaml:"-" env:"OPENAI_API_KEY" doc:"key of the OpenAI API; it stays in the worker"`
	GoogleKey    string `yaml:"-" env:"GOOGLE_API_KEY" doc:"key of Google's Gemini API; it stays in the worker"`
}

// LogConfig says what is logged, and how.
type LogConfig struct {
	Level  string `yaml:"level" env:"LEVEL" doc:"debug, info, warn or error"`
	Format string `yaml:"format" env:"FORMAT" doc:"text or json"`
}

// WorkerConfig is what a worker needs besides its connection.
type WorkerConfig struct {
	Name             string        `yaml:"name" env:"NAME" doc:"the worker's name; the host's name and process by default"`
	Slots            int           `yaml:"slots" env:"SLOTS" doc:"jobs at once; 0 means one per processor"`
	Queues           []string      `yaml:"queues" env:"QUEUES" doc:"queues to serve"`
	Labels           []string      `yaml:"labels" env:"LABELS" doc:"what this worker has that jobs may need, such as docker or gpu"`
	Backend          string        `yaml:"backend" env:"BACKEND" doc:"jail for jobs that do not name one"`
	Drain            time.Duration `yaml:"drain" env:"DRAIN" doc:"how long running jobs may continue after SIGTERM"`
	MaxJobs          int           `yaml:"max_jobs" env:"MAX_JOBS" doc:"end penstock worker when it has done this many jobs; 0 is any number"`
	IdleTimeout      time.Duration `yaml:"idle_timeout" env:"IDLE_TIMEOUT" doc:"end penstock worker after this long without a job; 0 is never"`
	Admin            string        `yaml:"admin" env:"ADMIN" doc:"address of /metrics, /livez and /readyz; empty for none"`
	Pprof            bool          `yaml:"pprof" env:"PPROF" doc:"profiles of the process at /debug/pprof/ of admin, which must be an address of loopback"`
	ROPaths          []string      `yaml:"ro_paths" env:"RO_PATHS" doc:"host directories that every jail sees read-only"`
	AllowHosts       []string      `yaml:"allow_hosts" env:"ALLOW_HOSTS" doc:"hosts that every job with network allowlist reaches, besides its own"`
	Engine           string        `yaml:"engine" env:"ENGINE" doc:"docker, podman or nerdctl, for isolation container; empty takes the first that is found"`
	Socket           string        `yaml:"engine_socket" env:"ENGINE_SOCKET" doc:"docker's daemon, unix:///path; empty takes the user's own, else the system's"`
	Runtime          string        `yaml:"engine_runtime" env:"ENGINE_RUNTIME" doc:"what the engine starts containers with: runsc, kata; empty is its default"`
	Workspace        string        `yaml:"workspace" env:"WORKSPACE" doc:"how jobs get files of their own: auto, overlay, clone, linked or hook"`
	WorkspaceCreate  string        `yaml:"workspace_create" env:"WORKSPACE_CREATE" doc:"program that makes a workspace and prints its path, for workspace hook"`
	WorkspaceRemove  string        `yaml:"workspace_remove" env:"WORKSPACE_REMOVE" doc:"program that removes it"`
	WorkspaceTime    time.Duration `yaml:"workspace_time" env:"WORKSPACE_TIME" doc:"how long each of the two may take"`
	WorktreeAge      time.Duration `yaml:"worktree_age" env:"WORKTREE_AGE" doc:"remove worktrees of users' repositories that were unused for this long; 0 is never"`
	DiskLimit        string        `yaml:"disk_limit" env:"DISK_LIMIT" doc:"what the workspace of a job may grow by that names no disk limit, where the jail can tell; 0 is no limit"`
	WholeAge         time.Duration `yaml:"whole_age" env:"WHOLE_AGE" doc:"how long workspaces stay that were too large to be stored whole; 0 keeps none"`
	WholeBytes       string        `yaml:"whole_bytes" env:"WHOLE_BYTES" doc:"what all of those may take on the disk; the oldest go first"`
	Reserve          string        `yaml:"reserve" env:"RESERVE" doc:"what must be free on the disk of data for jobs to be claimed: a size, a percentage, or 0; empty is 5%, and 1GiB at most"`
	StartTimeout     time.Duration `yaml:"start_timeout" env:"START_TIMEOUT" doc:"how long an agent may write nothing after its start; not of a program after --"`
	HaltTimeout      time.Duration `yaml:"halt_timeout" env:"HALT_TIMEOUT" doc:"how long a process of an agent may be stopped by a signal while the agent is silent"`
	ExitTimeout      time.Duration `yaml:"exit_timeout" env:"EXIT_TIMEOUT" doc:"how long an agent may take to exit when its last turn is over"`
	StepTimeout      time.Duration `yaml:"step_timeout" env:"STEP_TIMEOUT" doc:"how long an agent that hangs has for each step to its end"`
	OutputLimit      string        `yaml:"output_limit" env:"OUTPUT_LIMIT" doc:"what one run of an agent may write; a line counts as 1KiB at least"`
	RetryLimit       int           `yaml:"retry_limit" env:"RETRY_LIMIT" doc:"how often in a row an agent may try the model API again"`
	Cache            string        `yaml:"cache" env:"CACHE" doc:"how much of fetched commits, their checkouts and what setups wrote is kept for later jobs; beyond it the oldest go that no job uses"`
	SetupCache       time.Duration `yaml:"setup_cache" env:"SETUP_CACHE" doc:"how long jobs share the output of the same setup; 0 runs it for each job"`
	CommitAuthor     string        `yaml:"commit_author" env:"COMMIT_AUTHOR" doc:"Name <address> of delivered commits; empty keeps the agent's"`
	CommitTrailers   bool          `yaml:"commit_trailers" env:"COMMIT_TRAILERS" doc:"end delivered commits' messages with Penstock-Job and Penstock-Session"`
	Claude           string        `yaml:"claude" env:"CLAUDE" doc:"path of the claude program; empty looks in PATH"`
	RequireSignature []string      `yaml:"require_signature" env:"REQUIRE_SIGNATURE" doc:"files with public keys (PEM), one of which must have signed each job; none: no signature is needed"`
	ReceiptKey       string        `yaml:"receipt_key" env:"RECEIPT_KEY" doc:"ed25519 key that signs receipts, a PEM file; empty is that of the credential in creds, and without one receipt.key of data, which is made at the first start; none: there are no receipts"`
}

// ServeConfig is what the dispatcher needs.
type ServeConfig struct {
	Listen      string `yaml:"listen" env:"LISTEN" doc:"address of the embedded broker"`
	Admin       string `yaml:"admin" env:"ADMIN" doc:"address of /metrics, /livez and /readyz; empty for none"`
	Pprof       bool   `yaml:"pprof" env:"PPROF" doc:"profiles of the process at /debug/pprof/ of admin, which must be an address of loopback"`
	HTTP        string `yaml:"http" env:"HTTP" doc:"address of the HTTP API; empty for none"`
	Slots       int    `yaml:"slots" env:"SLOTS" doc:"slots of a worker inside serve; 0 for none"`
	TLSCert     string `yaml:"tls_cert" env:"TLS_CERT" doc:"certificate with which the embedded broker listens, a PEM file"`
	TLSKey      string `yaml:"tls_key" env:"TLS_KEY" doc:"its key, a PEM file"`
	TLSClientCA string `yaml:"tls_client_ca" env:"TLS_CLIENT_CA" doc:"let in only clients with a certificate by these authorities, a PEM file"`
	HTTPTLSCert string `yaml:"http_tls_cert" env:"HTTP_TLS_CERT" doc:"certificate of the HTTP API, a PEM file"`
	HTTPTLSKey  string `yaml:"http_tls_key" env:"HTTP_TLS_KEY" doc:"its key, a PEM file"`

	HTTPTLSClientCA string   `yaml:"http_tls_client_ca" env:"HTTP_TLS_CLIENT_CA" doc:"authorities whose certificates identify clients of the HTTP API, by their common names, a PEM file"`
	HTTPProxyHeader string   `yaml:"http_proxy_header" env:"HTTP_PROXY_HEADER" doc:"header in which a proxy names the user whose request it passes on"`
	HTTPProxyFrom   []string `yaml:"http_proxy_from" env:"HTTP_PROXY_FROM" doc:"addresses or networks of that proxy"`
	HTTPClients     []string `yaml:"http_clients" env:"HTTP_CLIENTS" doc:"roles of names from certificates and proxies: NAME=ROLE, *=ROLE for all others"`

	HTTPRate   float64  `yaml:"http_rate" env:"HTTP_RATE" doc:"requests a second that one credential may make over HTTP, in bursts of twice as many; 0: any number"`
	HTTPHosts  []string `yaml:"http_hosts" env:"HTTP_HOSTS" doc:"names by which clients reach the HTTP API, besides localhost and its address"`
	UIReadOnly bool     `yaml:"ui_read_only" env:"UI_READ_ONLY" doc:"pages of the dashboard have no actions, whoever looks at them"`
	// What models may do by /mcp, besides reading, as far as the roles of their tokens go.
	MCPAllow     []string `yaml:"mcp_allow" env:"MCP_ALLOW" doc:"what models may do over HTTP besides reading, as far as their tokens may: submit, answer, retry, cancel"`
	MCPTotalJobs int      `yaml:"mcp_total_jobs" env:"MCP_TOTAL_JOBS" doc:"jobs that the models of one token may submit until serve ends; 0 is no limit"`
	MCPTotalCost float64  `yaml:"mcp_total_cost" env:"MCP_TOTAL_COST" doc:"US dollars that these may cost together; 0 is no limit"`
	MaxDepth     int      `yaml:"max_depth" env:"MAX_DEPTH" doc:"how many generations of children a job may have"`
	// Budgets bound what jobs cost in a period.
	Budgets []string `yaml:"budgets" env:"BUDGETS" doc:"what jobs with something in common may cost in each period: queue:default=50/day, key:anthropic=300/month, pool=2000000tokens/hour"`
	// Caps bound what runs at once in the whole pool.
	Caps []string `yaml:"caps" env:"CAPS" doc:"how many jobs that have something in common run at once: repo:*=2, agent:claude=8"`
	// Quotas bound what is accepted.
	Quotas []string `yaml:"quotas" env:"QUOTAS" doc:"how many jobs that have something in common may be open, accepted and not finished: label:owner=*=1000; or how much may be stored of them: label:owner=*=20GiB"`
}

// KeepConfig says how long finished work is kept, and how much of it.
type KeepConfig struct {
	Jobs           time.Duration `yaml:"jobs" env:"JOBS" doc:"how long a finished job, its key and its specification are kept, counted from its end"`
	Events         time.Duration `yaml:"events" env:"EVENTS" doc:"how long a session's events are kept"`
	EventsBytes    string        `yaml:"events_bytes" env:"EVENTS_BYTES" doc:"size of all events; the oldest go first; empty is no bound but the disk's"`
	Results        time.Duration `yaml:"results" env:"RESULTS" doc:"how long results are kept, and the lists of artifacts and salvages"`
	Artifacts      time.Duration `yaml:"artifacts" env:"ARTIFACTS" doc:"how long patches, bundles and other artifacts are kept, salvages among them"`
	ArtifactsBytes string        `yaml:"artifacts_bytes" env:"ARTIFACTS_BYTES" doc:"size of all artifacts; a new one that does not fit is refused; empty is no bound but the disk's"`
	Dead           time.Duration `yaml:"dead_letters" env:"DEAD_LETTERS" doc:"how long dead letters are kept"`
	Audit          time.Duration `yaml:"audit" env:"AUDIT" doc:"how long the audit log keeps who asked for which change"`
	Rules          []string      `yaml:"rules" env:"RULES" doc:"how long finished jobs that have something in common are kept, if shorter than the others: queue:nightly=7d, label:owner=ann=24h"`
	Store          string        `yaml:"store_bytes" env:"STORE_BYTES" doc:"size of the embedded broker's whole store; empty is what is free on its disk but the reserve"`
	Reserve        string        `yaml:"reserve" env:"RESERVE" doc:"what the embedded broker leaves free on its disk; empty is 5%, and 1GiB at most"`
}

// ModelConfig says where the gate sends the agents' requests.
type ModelConfig struct {
	AnthropicURL string `yaml:"anthropic_url" env:"ANTHROPIC_URL" doc:"base URL of the Anthropic API, or of a gateway"`
	OpenAIURL    string `yaml:"openai_url" env:"OPENAI_URL" doc:"base URL of the OpenAI API, or of a gateway"`
	GoogleURL    string `yaml:"google_url" env:"GOOGLE_URL" doc:"base URL of Google's Gemini API, or of a gateway"`
	// Keys are in files only.
	Keys modelkey.Keys `yaml:"keys,omitempty" doc:"keys of model APIs, by name, instead of those of the environment: api, secret_file, weight, queues"`
	// Secrets are the variables with the keys' secrets. They have been removed from the
	// environment.
	Secrets map[string]string `yaml:"-"`
}

const day = 24 * time.Hour

// Defaults returns the settings of a user who set nothing.
func Defaults() Config {
	hangs := worker.DefaultHangs()
	return Config{
		Data: defaultData(), Prefix: "penstock.v1", Tenant: "default", Lease: 10 * time.Second, MaxRefusals: jobs.DefaultRefusals,
		Log: LogConfig{Level: "warn", Format: "text"},
		Worker: WorkerConfig{Queues: []string{"default"}, Backend: "auto", Workspace: "auto", Cache: "20GiB", SetupCache: 24 * time.Hour, WorkspaceTime: 10 * time.Minute, WorktreeAge: 30 * day, WholeAge: 7 * day, WholeBytes: "20GiB", DiskLimit: "10GiB", CommitTrailers: true, Drain: 10 * time.Minute,
			StartTimeout: hangs.Start, HaltTimeout: hangs.Halt, ExitTimeout: hangs.Exit, StepTimeout: hangs.Step, OutputLimit: jobs.Bytes(hangs.Output).String(), RetryLimit: hangs.Retries,
			Admin: "127.0.0.1:9091"},
		Serve: ServeConfig{Listen: "127.0.0.1:4222", Admin: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", HTTPRate: 200, MaxDepth: 1},
		Model: ModelConfig{AnthropicURL: "https://api.anthropic.com"},
		Keep:  KeepConfig{Jobs: 30 * day, Events: 30 * day, Results: 30 * day, Artifacts: 30 * day, Dead: 90 * day, Audit: 90 * day},
	}
}

func defaultData() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "penstock")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "/var/lib/penstock"
	}
	return filepath.Join(home, ".local", "state", "penstock")
}

// setting marks the flags that are settings: Load applies them again.
const setting = "penstock_setting"

// Settings marks every flag of a set as bound to a field of a [Config].
func Settings(flags *pflag.FlagSet) *pflag.FlagSet {
	flags.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{setting: {"true"}} })
	return flags
}

// Load fills c in the order of precedence. flags are those bound to c's fields; flags
// that were set win. file is --config; empty means ./penstock.yaml, or else the user's
// file, if they exist. secrets are variables that were removed from the environment.
func (c *Config) Load(flags *pflag.FlagSet, file string, secrets map[string]string) error {
	given := map[string][]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || f.Annotations[setting] == nil {
			return
		}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			given[f.Name] = many.GetSlice()
			return
		}
		given[f.Name] = []string{f.Value.String()}
	})
	*c = Defaults()
	if err := c.readFile(file); err != nil {
		return err
	}
	environ := env.ToMap(os.Environ())
	maps.Copy(environ, secrets)
	if err := env.ParseWithOptions(c, env.Options{Prefix: EnvPrefix, Environment: environ}); err != nil {
		return Usage("penstock help environment lists the variables", "environment: %s%w", culprits(err), err)
	}
	// Variables of the providers for the keys, unless ours are set.
	c.AnthropicKey = cmp.Or(c.AnthropicKey, secrets["ANTHROPIC_API_KEY"])
	c.OpenAIKey = cmp.Or(c.OpenAIKey, secrets["OPENAI_API_KEY"])
	c.GoogleKey = cmp.Or(c.GoogleKey, secrets["GEMINI_API_KEY"], secrets["GOOGLE_API_KEY"])
	c.Model.Secrets = map[string]string{}
	for name, value := range environ {
		if strings.HasPrefix(name, modelkey.Prefix) {
			c.Model.Secrets[name] = value
		}
	}
	for name, values := range given {
		if err := set(flags.Lookup(name), values); err != nil {
			return Usage("", "--%s: %w", name, err)
		}
	}
	return c.validate()
}

// culprits lists the variables of an error, which names only fields.
func culprits(err error) string {
	var names []string
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, EnvPrefix) && value != "" && strings.Contains(err.Error(), strconv.Quote(value)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ", ") + ": "
}

func set(f *pflag.Flag, values []string) error {
	if many, ok := f.Value.(pflag.SliceValue); ok {
		return many.Replace(values)
	}
	return f.Value.Set(values[0])
}

func (c *Config) readFile(file string) error {
	candidates := []string{file}
	if file == "" {
		candidates = []string{"penstock.yaml"}
		if dir, err := os.UserConfigDir(); err == nil {
			candidates = append(candidates, filepath.Join(dir, "penstock", "config.yaml"))
		}
	}
	for _, name := range candidates {
		data, err := input.ReadFile(name, input.MaxFile)
		if errors.Is(err, fs.ErrNotExist) && file == "" {
			continue
		}
		if err != nil {
			return Usage("", "read settings: %w", err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
			return Usage("penstock config view shows every setting", "%s: %w", name, err)
		}
		return nil
	}
	return nil
}

// isPerson reports whether s is valid as the author of a commit.
func isPerson(s string) bool {
	ok, err := regexp.MatchString(`^[^<>\x00-\x1f\s]([^<>\x00-\x1f]*[^<>\x00-\x1f\s])? <[^<>\x00-\x1f\s]+>$`, s)
	return ok && err == nil
}

func (c *Config) validate() error {
	abs, err := filepath.Abs(c.Data)
	if err != nil {
		return Usage("", "data: %w", err)
	}
	c.Data = abs
	var level levelText
	switch {
	case c.MaxRefusals < 1 || c.MaxRefusals > jobs.MaxLost:
		return Usage("", "max_refusals: %d is not between 1 and %d", c.MaxRefusals, jobs.MaxLost)
	case c.Lease < 2*time.Second || c.Lease > 10*time.Minute:
		return Usage("", "lease: %v is not between 2s and 10m", c.Lease)
	case c.Worker.Slots < 0 || c.Worker.Slots > 4096:
		return Usage("", "worker.slots: %d is not between 0 and 4096", c.Worker.Slots)
	case c.Worker.SetupCache < 0:
		return Usage("", "worker.setup_cache: %v is negative", c.Worker.SetupCache)
	case c.Serve.Slots < 0 || c.Serve.Slots > 4096:
		return Usage("", "serve.slots: %d is not between 0 and 4096", c.Serve.Slots)
	case c.Serve.HTTPRate < 0:
		return Usage("", "serve.http_rate: %g is less than 0", c.Serve.HTTPRate)
	case c.Serve.MaxDepth < 0 || c.Serve.MaxDepth > 16:
		return Usage("", "serve.max_depth: %d is not between 0 and 16", c.Serve.MaxDepth)
	case c.Replicas < 0 || c.Replicas > 5:
		return Usage("", "replicas: %d is not between 0 and 5", c.Replicas)
	case level.UnmarshalText([]byte(c.Log.Level)) != nil:
		return Usage("", "log.level: %q is not debug, info, warn or error", c.Log.Level)
	case c.Log.Format != "text" && c.Log.Format != "json":
		return Usage("", "log.format: %q is not text or json", c.Log.Format)
	}
	if err := errors.Join(c.Worker.validateWorkspace(), c.Worker.validateLimits()); err != nil {
		return err
	}
	if err := c.Serve.validateLimits(); err != nil {
		return err
	}
	if err := c.Keep.validate(); err != nil {
		return err
	}
	if _, err := c.Webhooks.Networks(); err != nil {
		return Usage("", "webhooks.%w", err)
	}
	if _, err := c.Forges.Forges(); err != nil {
		return Usage("see docs/how-to/pull-requests.md", "forges.%w", err)
	}
	if _, err := worker.ParseReserve(c.Worker.Reserve); err != nil {
		return Usage("", "worker.reserve: %w", err)
	}
	if by := c.Worker.CommitAuthor; by != "" && !isPerson(by) {
		return Usage("", "worker.commit_author: %q is not of the form Name <address>", by)
	}
	if err := c.validateNamed(); err != nil {
		return err
	}
	for _, p := range c.Worker.ROPaths {
		if !filepath.IsAbs(p) {
			return Usage("", "worker.ro_paths: %q is not an absolute path", p)
		}
	}
	return nil
}

// validateNamed checks the settings that have names of the user's.
func (c *Config) validateNamed() error {
	for _, name := range slices.Sorted(maps.Keys(c.Agents)) {
		if err := builtin.Agents(agent.Config{}).Validate(name, c.Agents[name]); err != nil {
			return Usage("see docs/how-to/agents.md", "%w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Prices)) {
		if err := c.Prices[name].Validate(); err != nil {
			return Usage("see docs/how-to/budgets.md", "prices.%s: %w", name, err)
		}
	}
	if err := c.Model.Keys.Check(); err != nil {
		return Usage("see docs/how-to/model-keys.md", "model.keys.%w", err)
	}
	return nil
}

// Hangs are the limits beyond which an agent hangs. The settings were validated.
func (w WorkerConfig) Hangs() worker.Hangs {
	output, _ := jobs.ParseBytes(w.OutputLimit)
	return worker.Hangs{
		Start: w.StartTimeout, Halt: w.HaltTimeout, Exit: w.ExitTimeout, Step: w.StepTimeout, Output: int64(output), Retries: w.RetryLimit,
	}
}

func isSize(text string) bool {
	n, err := jobs.ParseBytes(text)
	return err == nil && n >= 0
}

// DiskSizes are worker.disk_limit and worker.whole_bytes, which Load has validated.
func (w WorkerConfig) DiskSizes() (limit, whole int64) {
	most, _ := jobs.ParseBytes(w.DiskLimit)
	kept, _ := jobs.ParseBytes(w.WholeBytes)
	return int64(most), int64(kept)
}

func (w WorkerConfig) validateLimits() error {
	for _, s := range []struct {
		setting string
		value   time.Duration
	}{{"start_timeout", w.StartTimeout}, {"halt_timeout", w.HaltTimeout}, {"exit_timeout", w.ExitTimeout}, {"step_timeout", w.StepTimeout}} {
		if s.value < 100*time.Millisecond || s.value > 24*time.Hour {
			return Usage("", "worker.%s: %v is not between 100ms and 24h", s.setting, s.value)
		}
	}
	if w.MaxJobs < 0 {
		return Usage("", "worker.max_jobs: %d is less than 0", w.MaxJobs)
	}
	if w.IdleTimeout < 0 {
		return Usage("", "worker.idle_timeout: %v is negative", w.IdleTimeout)
	}
	if n, err := jobs.ParseBytes(w.Cache); err != nil || n < 1<<20 {
		return Usage("", "worker.cache: %q is not a size of 1MiB or more", w.Cache)
	}
	if n, err := jobs.ParseBytes(w.OutputLimit); err != nil || n < 1<<20 {
		return Usage("", "worker.output_limit: %q is not a size of 1MiB or more", w.OutputLimit)
	}
	if w.RetryLimit < 1 {
		return Usage("", "worker.retry_limit: %d is less than 1", w.RetryLimit)
	}
	return nil
}

func (w WorkerConfig) validateWorkspace() error {
	switch {
	case !slices.Contains([]string{"auto", "overlay", "clone", "linked", "hook"}, w.Workspace):
		return Usage("", "worker.workspace: %q is not auto, overlay, clone, linked or hook", w.Workspace)
	case w.WorktreeAge < 0:
		return Usage("", "worker.worktree_age: %v is negative", w.WorktreeAge)
	case w.WholeAge < 0:
		return Usage("", "worker.whole_age: %v is negative", w.WholeAge)
	case !isSize(w.DiskLimit):
		return Usage("", "worker.disk_limit: %q is not a size, such as 10GiB", w.DiskLimit)
	case !isSize(w.WholeBytes):
		return Usage("", "worker.whole_bytes: %q is not a size, such as 20GiB", w.WholeBytes)
	case w.WorkspaceTime < time.Second:
		return Usage("", "worker.workspace_time: %v is less than a second", w.WorkspaceTime)
	}
	for setting, program := range map[string]string{"workspace_create": w.WorkspaceCreate, "workspace_remove": w.WorkspaceRemove} {
		if program != "" && !filepath.IsAbs(program) {
			return Usage("", "worker.%s: %q is not an absolute path", setting, program)
		}
		if program == "" && w.Workspace == "hook" {
			return Usage("see docs/how-to/workspace-hook.md", "worker.%s: workspace hook needs it", setting)
		}
	}
	return nil
}

// YAML writes the settings as a settings file. The key is not a setting of files and is
// never written.
func (c Config) YAML(w io.Writer) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(c); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return enc.Close()
}

// Plain returns the settings as maps with the keys of a settings file.
func (c Config) Plain() (map[string]any, error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	plain := map[string]any{}
	return plain, yaml.Unmarshal(data, &plain)
}
