package main

import (
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressAfter is how long work of unknown length takes before it is worth a
// line.
const progressAfter = 500 * time.Millisecond

// progress shows on a terminal how far long work has come; elsewhere nothing.
type progress struct {
	app   *app
	what  string
	show  bool
	began time.Time
	bar   *progressbar.ProgressBar
}

// newProgress prepares a bar; it appears with the first news.
func (a *app) newProgress(what string) *progress {
	return &progress{app: a, what: what, show: !a.json && isTerminal(a.err), began: time.Now()}
}

// bytes shows bytes done of a known total.
func (p *progress) bytes(done, total int64) {
	if !p.show || total <= 0 {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(total, p.options(
			progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionSetPredictTime(true))...)
	}
	if p.bar.GetMax64() != total {
		p.bar.ChangeMax64(total)
	}
	p.bar.Set64(min(done, total)) // a failure to draw is not worth a word
}

// text shows work whose end is not known.
func (p *progress) text(s string) {
	if !p.ready() {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(-1, p.options(progressbar.OptionSpinnerType(14), progressbar.OptionSetSpinnerChangeInterval(0))...)
	}
	p.bar.Describe(p.what + ": " + s)
	p.bar.Add64(1)
}

// end takes the bar away.
func (p *progress) end() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
	p.show = false
}

func (p *progress) ready() bool { return p.show && time.Since(p.began) >= progressAfter }

func (p *progress) options(more ...progressbar.Option) []progressbar.Option {
	return append([]progressbar.Option{
		progressbar.OptionSetWriter(p.app.err), progressbar.OptionSetDescription(p.what),
		progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	}, more...)
}
