package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func usd(v float64) Amount { return Amount{USD: v} }

// However many calls come at once, and whatever they cost, an account is exceeded by no
// more than the last of them: here by random ones that each cost up to what they reserve.
func TestExceededByOneCallAtTheMost(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			a := New(Amount{USD: 100, Tokens: 1000}, Amount{})
			var mu sync.Mutex
			spent, dearest, refused := Amount{}, Amount{}, 0
			var calls sync.WaitGroup
			for range 200 {
				most := Amount{USD: random.Float64() * 60, Tokens: random.Int64N(700)}
				part, took := random.Float64(), time.Duration(random.Int64N(1e9))
				used := Amount{USD: most.USD * part, Tokens: int64(float64(most.Tokens) * part)}
				calls.Go(func() {
					h, err := a.Reserve(t.Context(), most)
					if err != nil {
						mu.Lock()
						refused++
						mu.Unlock()
						return
					}
					h.Use(Amount{USD: used.USD / 2, Tokens: used.Tokens / 2})
					time.Sleep(took)
					h.Use(used)
					mu.Lock()
					spent = spent.Add(used)
					dearest = Amount{max(dearest.USD, used.USD), max(dearest.Tokens, used.Tokens)}
					mu.Unlock()
					h.Release()
				})
			}
			calls.Wait()
			if !spent.reaches(a.limit, 1) || refused == 0 {
				t.Errorf("seed %d: %+v was spent, %d were refused", seed, spent, refused)
			}
			if spent.USD > 100+dearest.USD || spent.Tokens > 1000+dearest.Tokens {
				t.Errorf("seed %d: %+v was spent, the dearest call used %+v", seed, spent, dearest)
			}
			if len(a.held)+len(a.waiting) != 0 {
				t.Errorf("seed %d: %d are held, %d wait", seed, len(a.held), len(a.waiting))
			}
		})
	}
}

func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(usd(10), usd(2))
		first, err := a.Reserve(t.Context(), usd(5))
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan *Hold)
		go func() { h, _ := a.Reserve(t.Context(), usd(5)); second <- h }()
		synctest.Wait() // it waits before the third
		third := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, err := a.Reserve(ctx, usd(1)); third <- err }()
		synctest.Wait()
		select {
		case <-second:
			t.Fatal("12 of 10 are reserved")
		case err := <-third:
			t.Fatalf("a small one went before one that waits: %v", err)
		default:
		}
		cancel()
		if err := <-third; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if news := first.Use(usd(3)); news != (News{}) {
			t.Errorf("5 of 10: %+v", news)
		}
		first.Release()
		h := <-second
		if news := h.Use(usd(3)); news != (News{Warned: true}) {
			t.Errorf("8 of 10: %+v", news)
		}
		if news := h.Use(usd(1)); news != (News{}) {
			t.Errorf("it fell: %+v", news)
		}
		waiter := make(chan error)
		go func() { _, err := a.Reserve(t.Context(), usd(50)); waiter <- err }()
		synctest.Wait()
		if news := h.Use(usd(9)); news != (News{Spent: true}) {
			t.Errorf("14 of 10: %+v", news)
		}
		if err := <-waiter; !errors.Is(err, ErrSpent) {
			t.Errorf("who waited: %v", err)
		}
		if news := h.Use(usd(10)); news != (News{}) {
			t.Errorf("told twice: %+v", news)
		}
		h.Release()
		<-a.Spent()
	})
}

// What is larger than the whole budget is possible once, alone.
func TestAloneItMayBeLarge(t *testing.T) {
	a := New(usd(1), Amount{})
	h, err := a.Reserve(t.Context(), usd(1000))
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	if _, err := New(usd(1), usd(1)).Reserve(t.Context(), Amount{}); !errors.Is(err, ErrSpent) {
		t.Errorf("a spent one: %v", err)
	}
	free := New(Amount{}, usd(1e9))
	for range 10 {
		if _, err := free.Reserve(t.Context(), usd(1e9)); err != nil {
			t.Errorf("without a limit: %v", err)
		}
	}
}
