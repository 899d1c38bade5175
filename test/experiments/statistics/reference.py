"""Writes reference.json: what R and Python's scipy and statsmodels say of the statistics.

    apt-get install r-base-core r-cran-survey python3-scipy python3-statsmodels
    /usr/bin/python3 test/experiments/statistics/reference.py

Each case names the statistic, its arguments, and the call that made its value; versions stand at the top. Tests read
the file and never run this.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import scipy
import statsmodels
from scipy import stats
from statsmodels.stats import power, proportion

cases = []
pending = []


def by_r(statistic, args, call):
    """A case whose value is a numeric vector that R computes: all of them in one run."""
    case = {'statistic': statistic, 'args': args, 'call': 'R: ' + ' '.join(call.split()), 'value': None}
    cases.append(case)
    pending.append((case, call))


def by_python(statistic, args, call):
    value = eval(call, {'stats': stats, 'power': power, 'proportion': proportion, 'math': math})
    values = [float(one) for one in value] if hasattr(value, '__iter__') else [float(value)]
    cases.append({'statistic': statistic, 'args': args, 'call': 'Python: ' + call, 'value': values})


def run_r():
    definitions = r'''
suppressMessages(library(survey))
# R. Newcombe, Statistics in Medicine 17 (1998), 2635-2650, method 10: written out, R has no function for it.
newcombe.paired <- function(both, control.only, treatment.only, neither, alpha) {
  n <- both + control.only + treatment.only + neither
  score <- function(x) suppressWarnings(prop.test(x, n, conf.level = 1 - alpha, correct = FALSE)$conf.int)
  x1 <- both + treatment.only; x2 <- both + control.only
  i1 <- score(x1); i2 <- score(x2); p1 <- x1 / n; p2 <- x2 / n
  under <- sqrt(x1 * (n - x1)) * sqrt(x2 * (n - x2))
  over <- both * neither - control.only * treatment.only
  if (over > 0) over <- max(over - n / 2, 0)
  phi <- if (under == 0) 0 else over / under
  d <- p1 - p2
  c(d, d - sqrt((p1 - i1[1])^2 - 2 * phi * (p1 - i1[1]) * (i2[2] - p2) + (i2[2] - p2)^2),
    d + sqrt((i1[2] - p1)^2 - 2 * phi * (i1[2] - p1) * (p2 - i2[1]) + (p2 - i2[1])^2))
}
# Waudby-Smith et al. (2021), the half-width for n observations with variance s2, planned for N: written out.
sequence.half <- function(n, s2, N, alpha) {
  rho2 <- (-2 * log(alpha) + log(-2 * log(alpha) + 1)) / N
  sqrt(s2) * sqrt(2 * (n * rho2 + 1) / (n^2 * rho2) * log(sqrt(n * rho2 + 1) / alpha))
}
survey.ratio <- function(y, x) {
  fit <- svyratio(~y, ~x, svydesign(ids = ~1, weights = rep(1, length(y)), data = data.frame(y = y, x = x)))
  c(coef(fit), SE(fit)^2)
}
# Of single calls, each of which failed or not, in clusters.
call.share <- function(y, x, alpha) {
  calls <- data.frame(unit = rep(seq_along(x), x), failed = unlist(Map(function(k, n) rep(1:0, c(k, n - k)), y, x)))
  share <- svyciprop(~failed, svydesign(ids = ~unit, weights = ~1, data = calls), "logit", level = 1 - alpha)
  c(coef(share), confint(share))
}
# Zou and Donner (2008): of a difference of two such shares, each as estimate, low and high. Written out.
zou.donner <- function(control, treatment) {
  d <- treatment[1] - control[1]
  unname(c(d, d - sqrt((treatment[1] - treatment[2])^2 + (control[3] - control[1])^2),
           d + sqrt((treatment[3] - treatment[1])^2 + (control[1] - control[2])^2)))
}
'''
    lines = [f'cat(sprintf("%.17g", c({call})), "\\n")' for _, call in pending]
    script = definitions + '\n'.join(lines)
    done = subprocess.run(['Rscript', '-'], input=script, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    for (case, _), line in zip(pending, done.stdout.strip().split('\n'), strict=True):
        case['value'] = [float(one) for one in line.split()]


def vector(values):
    return 'c(' + ', '.join(map(repr, values)) + ')'


# Distributions: both tails, small probabilities, huge and broken degrees of freedom.
for z in [-38, -37, -8, -3, -1e-8, 0, 0.3, 1.959963984540054, 7]:
    by_r('normalTails', [z], f'pnorm({z!r}), pnorm({z!r}, lower.tail = FALSE)')
for p in [1e-300, 1e-12, 1e-5, 0.025, 0.3, 0.4999, 0.5, 0.6, 0.975, 0.999999]:
    by_r('normalQuantile', [p], f'qnorm({p!r})')
for t, df in [(-1, 1), (12, 1), (-1e6, 1), (0, 3), (2, 3), (-7, 30.5), (-5, 1e6), (1e-9, 4), (-2, 1e9), (-40, 50), (-3, 0.5)]:
    by_r('studentTails', [t, df], f'pt({t!r}, {df!r}), pt({t!r}, {df!r}, lower.tail = FALSE)')
for p, df in [(1e-12, 1), (0.025, 1), (0.975, 2.5), (0.3, 1e6), (1e-10, 1e6), (0.49, 7), (0.999, 0.5), (1e-12, 5), (0.025, 1e9), (0.5, 3)]:
    by_r('studentQuantile', [p, df], f'qt({p!r}, {df!r})')
for k, n, p in [(0, 10, 0.5), (5, 10, 0.5), (9, 10, 0.5), (10, 10, 0.5), (3, 1000, 0.01), (498000, 1000000, 0.5),
                (10, 1000000, 1e-4), (4990000, 10000000, 0.5), (490, 1000, 0.5), (0, 5, 0.0), (40, 1000, 0.001)]:
    by_r('binomialTails', [k, n, p], f'pbinom({k}, {n}, {p!r}), pbinom({k}, {n}, {p!r}, lower.tail = FALSE)')

# Proportions.
for x, n, alpha in [(0, 1, 0.05), (1, 1, 0.05), (0, 20, 0.05), (20, 20, 0.05), (1, 1000000, 0.05), (3, 7, 0.1), (812, 1000, 0.01),
                    (50000000, 100000000, 1e-9)]:
    by_python('wilsonInterval', [x, n, alpha], f"proportion.proportion_confint({x}, {n}, {alpha!r}, method='wilson')")
for xc, nc, xt, nt, alpha in [(48, 70, 56, 80, 0.05), (0, 10, 10, 10, 0.05), (0, 10, 0, 20, 0.05), (5, 56, 0, 29, 0.05),
                              (30, 30, 30, 30, 0.01), (100000, 1000000, 100500, 1000000, 0.05), (1, 2, 1, 3, 0.2)]:
    by_python('newcombeInterval', [xc, nc, xt, nt, alpha],
              f"proportion.confint_proportions_2indep({xt}, {nt}, {xc}, {nc}, method='newcomb', compare='diff', alpha={alpha!r})")
for a, b, c, d, alpha in [(14, 0, 5, 22, 0.05), (1, 7, 1, 12, 0.05), (36, 2, 12, 0, 0.05), (0, 0, 0, 54, 0.05), (54, 0, 0, 0, 0.05),
                          (0, 30, 0, 0, 0.05), (0, 10, 12, 0, 0.05), (2, 14, 1, 16, 0.01), (40000, 3000, 2800, 60000, 0.05)]:
    by_r('newcombePairedInterval', [a, b, c, d, alpha], f'newcombe.paired({a}, {b}, {c}, {d}, {alpha!r})')

# Units: means, ratios, and their differences.
short = [0.0, 0.0, 1.5, 2.0, 40.0, 3.25, 0.125]
other = [1e6 + 1, 1e6 + 2, 1e6 + 2.5, 1e6 - 7]
long = [round(math.sin(i) * 100 + i, 3) for i in range(60)]
for x, alpha in [(short, 0.05), (other, 0.01), (long, 0.001), ([1.0, 2.0], 0.05)]:
    by_r('studentInterval', [x, alpha], f't.test({vector(x)}, conf.level = 1 - {alpha!r})[c("estimate", "conf.int")] |> unlist()')
for x, y, alpha in [(short, long, 0.05), (long, short, 0.01), (other, long, 0.05), ([1.0, 2.0], [4.0, 9.0, 11.0], 0.05)]:
    by_r('welchInterval', [x, y, alpha],
         f'mean({vector(y)}) - mean({vector(x)}), t.test({vector(y)}, {vector(x)}, conf.level = 1 - {alpha!r})$conf.int')
for x, y, alpha in [(short, long[:7], 0.05), (long[:30], long[30:], 0.01)]:
    by_r('pairedInterval', [x, y, alpha],
         f'mean({vector(y)} - {vector(x)}), t.test({vector(y)}, {vector(x)}, paired = TRUE, conf.level = 1 - {alpha!r})$conf.int')
calls = [1 + (i * i) % 13 for i in range(50)]
failed = [min(n, (i * 7) % 5) for i, n in enumerate(calls)]
for y, x in [(failed, calls), ([0, 0, 1, 0], [64, 1, 3, 8]), ([3, 5], [4, 9]), ([0, 0, 0], [1, 2, 3])]:
    by_r('ratioOf', [y, x], f'survey.ratio({vector(y)}, {vector(x)})')
for y, x, alpha in [(failed, calls, 0.05), ([0, 0, 1, 0], [64, 1, 3, 8], 0.01), ([3, 5, 0, 1, 9, 2], [4, 9, 2, 2, 9, 3], 0.05)]:
    by_r('clusteredInterval', [y, x, alpha], f'call.share({vector(y)}, {vector(x)}, {alpha!r})')

few = ([1, 0, 2, 0, 1, 0], [6, 4, 9, 2, 3, 5])
for (y1, x1), (y2, x2), alpha in [((failed, calls), few, 0.05), (few, ([3, 5, 0, 1, 9, 2], [4, 9, 2, 2, 9, 3]), 0.01)]:
    by_r('clusteredDifferenceInterval', [y1, x1, y2, x2, alpha],
         f'zou.donner(call.share({vector(y1)}, {vector(x1)}, {alpha!r}), call.share({vector(y2)}, {vector(x2)}, {alpha!r}))')

# Confidence sequences.
for n, s2, planned, alpha in [(20, 1, 1000, 0.05), (1000, 0.25, 1000, 0.05), (5000, 4, 1000, 0.05), (100, 1e-6, 100000, 0.001), (1e7, 9, 1e4, 0.2)]:
    by_r('sequenceHalfWidth', [n, s2, planned, alpha], f'sequence.half({n!r}, {s2!r}, {planned!r}, {alpha!r})')

# Pairs.
for b, c in [(0, 0), (0, 1), (5, 5), (3, 12), (0, 40), (150, 86), (500000, 498000), (10, 1)]:
    exact = '1' if b + c == 0 else f'binom.test({b}, {b + c})$p.value'
    by_r('mcNemarExact', [b, c], exact)

# Significance.
for ps in [[0.01, 0.04, 0.03], [0.5], [0.9, 0.8, 0.7], [1e-12, 0.02, 0.02, 1], [0.05, 0.0001, 0.2, 0.0001, 0.03]]:
    by_r('holm', [ps], f'p.adjust({vector(ps)}, "holm")')

# The Bayes factor of planned shares against any shares, each as likely: then all counts of the same sum are as likely.
for counts, shares in [([0, 0], [0.5, 0.5]), ([500, 520], [0.5, 0.5]), ([1000, 1200], [1, 1]), ([90, 10], [0.9, 0.1]),
                       ([3000, 3400, 3000], [1, 1, 1]), ([25000, 24000], [0.5, 0.5]), ([9, 0], [0.2, 0.8])]:
    total, whole = sum(counts), sum(shares)
    by_python('sampleRatioSequence', [counts, shares],
              f'min(1, math.exp(stats.multinomial.logpmf({counts!r}, {total}, {[one / whole for one in shares]!r})'
              f' + math.log(math.comb({total + len(counts) - 1}, {len(counts) - 1}))))')

# Power.
for pc, pt, alpha, wanted in [(0.8, 0.85, 0.05, 0.8), (0.01, 0.02, 0.05, 0.9), (0.5, 0.1, 0.001, 0.95), (0.999, 0.998, 0.05, 0.8), (0, 0.01, 0.05, 0.8)]:
    by_r('unitsForProportions', [pc, pt, alpha, wanted, 0.5],
         f'ceiling(power.prop.test(p1 = {pc!r}, p2 = {pt!r}, sig.level = {alpha!r}, power = {wanted!r}, tol = 1e-13)$n)')
for pc, pt, alpha, wanted, share in [(0.8, 0.85, 0.05, 0.8, 0.1), (0.3, 0.2, 0.01, 0.9, 0.75)]:
    ratio = (1 - share) / share
    by_python('unitsForProportions', [pc, pt, alpha, wanted, share],
              f'[math.ceil({ratio!r} * n) for n in [proportion.samplesize_proportions_2indep_onetail({pt!r} - {pc!r}, {pc!r}, '
              f'{wanted!r}, ratio={ratio!r}, alpha={alpha!r})]]')
for n, p, wanted in [(905.3, 0.8, 0.8), (200, 0.05, 0.9), (1e6, 0.5, 0.8)]:
    by_r('detectableProportion', [p, n, wanted],
         f'power.prop.test(n = {n!r}, p1 = {p!r}, power = {wanted!r}, tol = 1e-13)$p2 - {p!r}')
for d, s, alpha, wanted, share in [(2, 10, 0.05, 0.8, 0.5), (0.01, 1, 0.001, 0.99, 0.5), (2, 10, 0.05, 0.8, 0.1)]:
    ratio = share / (1 - share)
    by_python('unitsForMeans', [d, s, alpha, wanted, share],
              f'[math.ceil(power.NormalIndPower().solve_power({d / s!r}, power={wanted!r}, alpha={alpha!r}, ratio={ratio!r}))]')
for nc, vc, nt, vt, alpha, wanted in [(100, 4, 300, 9, 0.05, 0.8), (20000, 1e4, 5000, 1e6, 0.01, 0.95)]:
    by_r('detectableMean', [nc, vc, nt, vt, alpha, wanted],
         f'(qnorm(1 - {alpha!r} / 2) + qnorm({wanted!r})) * sqrt({vc!r} / {nc!r} + {vt!r} / {nt!r})')

# Quantiles.
for x, q in [(long, 0.5), (long, 0.95), (long, 0.99), (short, 0.5), (short, 0.25)]:
    by_r('quantile', [x, q], f'quantile({vector(x)}, {q!r}, type = 1, names = FALSE)')

run_r()
r_version = subprocess.run(['Rscript', '-e', 'cat(R.version.string, "| survey", format(packageVersion("survey")))'],
                           capture_output=True, text=True, check=True).stdout
versions = {'R': r_version, 'python': sys.version.split()[0], 'scipy': scipy.__version__, 'statsmodels': statsmodels.__version__}
lines = ',\n'.join('    ' + json.dumps(case, allow_nan=False) for case in cases)
Path(__file__).with_name('reference.json').write_text(
    '{\n  "versions": ' + json.dumps(versions) + ',\n  "cases": [\n' + lines + '\n  ]\n}\n')
print(len(cases), 'cases')
