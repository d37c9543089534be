package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/pricing"
)

// An attack is what a hostile program in a jail does with its way to the model API to get
// more out of it than the budget allows.
type attack struct {
	name string
	api  string
	body string // of each call; TEXT is 40,000 bytes of prose
	path string
	// calls is how many it makes at once, and rounds how often in a row.
	calls, rounds int
	hangUp        time.Duration // after which it hangs up; 0: not before the answer
	reads         int           // bytes of an answer, after which it hangs up; 0: all
	// answers is what the provider sends, which has used so much by its own account.
	answers func(w http.ResponseWriter, r *http.Request)
	used    pricing.Tokens
	model   string // whose price counts
}

const (
	opus  = `{"model":"claude-opus-5","max_tokens":4000,"stream":true,"messages":[{"role":"user","content":"TEXT"}]}`
	prose = 10_000 // tokens of TEXT
)

// tells is an answer of Anthropic's that reports so much.
func tells(input, output int, speed string) string {
	return fmt.Sprintf("data: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":%d,\"output_tokens\":1,\"speed\":%q}}}\n\n", input, speed) +
		strings.Repeat(text, output) + fmt.Sprintf("data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":%d}}\n\n", output) + stop
}

// pause lets calls that were sent at once be under way together.
func pause(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { time.Sleep(10 * time.Millisecond); f(w, r) }
}

// and breaks an answer off.
func broken(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { f(w, r); panic(http.ErrAbortHandler) }
}

// endless sends an answer until nobody waits for it any more.
func endless(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { f(w, r); <-r.Context().Done() }
}

func attacks() []attack {
	honest := stream(tells(prose, 500, ""))
	within := strings.TrimSuffix(tells(prose, 300, ""), stop)
	used := pricing.Tokens{Input: prose, Output: 500}
	whole := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
	}
	return []attack{
		{name: "calls in a row", body: opus, rounds: 40, answers: honest, used: used},
		{name: "twenty calls at once", body: opus, calls: 20, rounds: 3, answers: pause(honest), used: used},
		{name: "a budget for tiny answers, at once", body: strings.Replace(opus, "4000", "1", 1), calls: 20, rounds: 3, answers: pause(stream(tells(prose, 1, ""))), used: pricing.Tokens{Input: prose, Output: 1}},
		{name: "hangs up within answers", body: opus, rounds: 60, reads: len(within), answers: endless(stream(within)), used: used},
		{name: "hangs up before answers begin", body: opus, rounds: 60, hangUp: 20 * time.Millisecond, answers: endless(func(http.ResponseWriter, *http.Request) {}), used: pricing.Tokens{Input: prose}},
		{name: "streams that break, tried again as an SDK does", body: opus, rounds: 60, answers: broken(stream(tells(prose, 300, "")[:20_000])), used: pricing.Tokens{Input: prose, Output: 160}},
		{name: "errors, tried again as an SDK does", body: opus, rounds: 10, answers: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529) }},
		{name: "errors of a gateway, tried again as an SDK does", body: opus, rounds: 40, answers: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(502)
			_, _ = io.WriteString(w, "<html>"+strings.Repeat("bad gateway ", 1000))
		}},
		{name: "a provider that reports nothing", body: opus, rounds: 60, answers: stream(strings.Repeat(text, 500), stop), used: used},
		{name: "a provider that reports zeros", body: opus, rounds: 60, answers: stream(strings.Replace(tells(0, 500, ""), `"output_tokens":500`, `"output_tokens":0`, 1)), used: used},
		{name: "a provider that reports less than nothing", body: opus, rounds: 60, answers: stream(strings.Replace(tells(-prose, 500, ""), `"output_tokens":500`, `"output_tokens":-500`, 1)), used: used},
		{name: "a faster service", body: strings.Replace(opus, `"stream"`, `"speed":"fast","stream"`, 1), calls: 5, rounds: 20, answers: pause(stream(tells(prose, 500, "fast"))),
			used: pricing.Tokens{Input: prose, Output: 500, Tier: "fast"}},
		{name: "a model without a price", body: strings.Replace(opus, "claude-opus-5", "psychic", 1), calls: 5, rounds: 20, answers: pause(honest), used: used, model: "psychic"},
		{name: "OpenAI without a bound, at once", api: "openai", path: "/v1/responses", body: `{"model":"gpt-5.5","input":"TEXT"}`, calls: 20, rounds: 3, model: "gpt-5.5",
			answers: pause(whole(`{"object":"response","model":"gpt-5.5","usage":{"input_tokens":10000,"output_tokens":500}}`)), used: used},
		{name: "completions without usage", api: "openai", path: "/v1/chat/completions", body: `{"model":"gpt-5.5","stream":true,"messages":[{"role":"user","content":"TEXT"}]}`, rounds: 60, model: "gpt-5.5",
			answers: stream(strings.Repeat("data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n", 500), "data: [DONE]\n\n"), used: used},
		{name: "many answers to one call", api: "google", path: "/v1beta/models/gemini-2.5-pro:generateContent", body: `{"contents":[{"parts":[{"text":"TEXT"}]}],"generationConfig":{"candidateCount":8,"maxOutputTokens":1000}}`,
			calls: 10, rounds: 12, model: "gemini-2.5-pro", answers: pause(whole(`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10000,"candidatesTokenCount":8000}}`)), used: pricing.Tokens{Input: prose, Output: 8000}},
	}
}

// However a program in the jail calls the model API, it costs no more than the budget and
// one answer, by the account of the provider.
func TestAttacksOnTheBudget(t *testing.T) {
	const limit = 0.5
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			price, _ := pricing.New(nil).Find(orDefault(a.api, "anthropic"), orDefault(a.model, "claude-opus-5"))
			each := price.Cost(a.used)
			var mu sync.Mutex
			charged := 0
			r := newRig(t, Config{API: a.api}, Limits{USD: limit}, func(w http.ResponseWriter, req *http.Request) {
				mu.Lock()
				charged++
				mu.Unlock()
				a.answers(w, req)
			})
			refused := a.run(r)
			mu.Lock()
			defer mu.Unlock()
			cost := float64(charged) * each
			t.Logf("| %s | %d | %.3f | %+.3f | %.3f |", a.name, charged, cost, cost-limit, each)
			if cost > limit+each {
				t.Errorf("%d calls cost %.3f of %.3f, one costs %.3f; the gate counted %+v", charged, cost, limit, each, r.session.Meter())
			}
			if (refused == 0) != (each == 0) {
				t.Errorf("%d calls were refused, %d made: %+v", refused, charged, r.session.Meter())
			}
		})
	}
}

// run attacks, and returns how many calls were refused because the budget is spent.
func (a attack) run(r *rig) (refused int) {
	body := strings.Replace(a.body, "TEXT", strings.Repeat("lorem ip", 5_000), 1)
	var mu sync.Mutex
	for range a.rounds {
		var calls sync.WaitGroup
		for range max(a.calls, 1) {
			calls.Go(func() {
				if a.call(r, body) {
					mu.Lock()
					defer mu.Unlock()
					refused++
				}
			})
		}
		calls.Wait()
		if refused > 0 {
			return refused
		}
	}
	return refused
}

// call makes one call, and reports whether it was refused for the budget.
func (a attack) call(r *rig, body string) bool {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	if a.hangUp > 0 {
		time.AfterFunc(a.hangUp, cancel)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+orDefault(a.path, "/v1/messages"), strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return false
	}
	res, err := r.client.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var answer io.Reader = res.Body
	if a.reads > 0 {
		answer = io.LimitReader(answer, int64(a.reads))
	}
	got, _ := io.ReadAll(answer)
	var e struct{ Error struct{ Message string } }
	return res.StatusCode == http.StatusBadRequest && json.Unmarshal(got, &e) == nil && strings.Contains(e.Error.Message, "penstock: the budget")
}

// A purse is a shared budget that answers as it is told.
type purse struct {
	left func(ctx context.Context) (budget.Amount, error)
	used budget.Amount
}

func (p *purse) Name() string                                    { return "pool=1/day" }
func (p *purse) Left(ctx context.Context) (budget.Amount, error) { return p.left(ctx) }
func (p *purse) Nearly() bool                                    { return false }
func (p *purse) Settle(used budget.Amount)                       { p.used = p.used.Add(used) }

// An agent that hangs up while a shared budget is asked has not spent it.
func TestHangingUpSpendsNoSharedBudget(t *testing.T) {
	p := &purse{left: func(ctx context.Context) (budget.Amount, error) {
		<-ctx.Done()
		return budget.Amount{}, context.Cause(ctx)
	}}
	s := NewSession("s", token, Limits{Shared: []Purse{p}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.reserve(ctx, budget.Amount{USD: 1}); err == nil || s.Exhausted() != nil {
		t.Errorf("err %v, exhausted %v", err, s.Exhausted())
	}
	p.left = func(context.Context) (budget.Amount, error) { return budget.Amount{}, budget.ErrSpent }
	if _, err := s.reserve(t.Context(), budget.Amount{USD: 1}); err == nil || s.Exhausted() != Purse(p) {
		t.Errorf("err %v, exhausted %v", err, s.Exhausted())
	}
}
