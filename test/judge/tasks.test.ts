import assert from 'node:assert/strict'
import { test } from 'node:test'
import { contract, contractOf } from '../../src/judge/contract.ts'
import { check, ConditionError, readConditions } from '../../src/judge/fail-on.ts'
import { tasksIn } from '../../src/judge/task.ts'
import { judge, summarize } from '../../src/judge/verdicts.ts'
import { call } from '../sim/recorded.ts'

const places = new Map<never, never>()

test('calls without a task are left out, and a task with two reports ran twice', () => {
  const [at0, at20, at40] = [call({ at: 0 }), call({ at: 20 }), call({ at: 40 })]
  const { task: _, ...stray } = call({ at: 5 })
  const outcomes = [
    { task: 'task', outcome: 'failed', at: 30 },
    { task: 'task', outcome: 'succeeded', at: 60 },
  ]
  const runs = (reports: typeof outcomes) =>
    tasksIn({ calls: [at0, stray, at20, at40], places, outcomes: reports, hasGaps: false }, []).map(
      ({ calls, outcome }) => [calls.map(({ at }) => at), outcome],
    )
  assert.deepEqual(runs(outcomes), [
    [[0, 20], 'failed'],
    [[40], 'succeeded'],
  ])
  assert.deepEqual(runs([outcomes[0]!]), [[[0, 20, 40], 'failed']])
  assert.deepEqual(runs([]), [[[0, 20, 40], undefined]])
})

test('a task has the common promises of all kinds that may call its tools', () => {
  const kind = (tools: string[] | undefined, promises: object | undefined) => ({
    tools,
    contract: promises && contract.parse(promises),
  })
  const buying = kind(['shop/look', 'buy'], { mustRun: ['buy'], repeatable: ['look'], polls: ['look'] })
  const looking = kind(['look'], { mustRun: ['look'], polls: ['look'] })
  const [look, buy] = [call(), call({ tool: 'buy' })]
  assert.deepEqual(contractOf([look, buy], [buying, looking]), buying.contract)
  assert.deepEqual(contractOf([look], [buying, looking]), {
    mustRun: undefined,
    repeatable: [],
    polls: ['look'],
  })
  assert.equal(contractOf([call({ tool: 'other' })], [buying, looking]), undefined)
  assert.equal(contractOf([look], [buying, kind(['look'], undefined)]), undefined)
  assert.equal(contractOf([look], []), undefined)
  assert.deepEqual(contractOf([look], [kind(undefined, { mustRun: [] })])?.mustRun, [])
})

/** Verdicts on tasks, some of which write twice. */
function verdicts(tasks: number, found: number) {
  const calls = Array.from({ length: tasks }, (_, nth) => [
    call({ at: nth, task: `${nth}`, effect: 'write' }),
    ...(nth < found ? [call({ at: nth + 20, task: `${nth}`, effect: 'write' })] : []),
  ]).flat()
  return judge(tasksIn({ calls, places, outcomes: [], hasGaps: false }, []))
}

test('a summary has Wilson’s interval of a share, and Newcombe’s of the difference from a run without faults', () => {
  const of = (rules: ReturnType<typeof summarize>, name: string) => rules.find(({ rule }) => rule === name)!
  const { found, proven, decidable, share, difference } = of(
    summarize(verdicts(80, 56), verdicts(80, 48)),
    'duplicate_write',
  )
  // Without a contract, nobody knows the repeatable tools.
  assert.deepEqual([found, proven, decidable], [56, 0, 80])
  const rounded = (value: number | undefined) => value?.toFixed(4)
  assert.deepEqual([share?.estimate, share?.low, share?.high].map(rounded), ['0.7000', '0.5923', '0.7894'])
  // Newcombe's own example (a) of method 10: 56 of 70 and 48 of 80 have 0.0524 to 0.3339.
  const example = of(summarize(verdicts(70, 56), verdicts(80, 48)), 'duplicate_write').difference
  assert.deepEqual([example?.estimate, example?.low, example?.high].map(rounded), [
    '0.2000',
    '0.0524',
    '0.3339',
  ])
  assert.equal(rounded(difference?.estimate), '0.1000')
  const blank = of(summarize(verdicts(3, 0), verdicts(3, 0)), 'false_success')
  assert.deepEqual([blank.share, blank.difference, blank.decidable], [null, null, 0])
  assert.deepEqual(blank.undecided, [{ why: 'no outcome was reported', tasks: 3 }])
})

test('conditions compare tasks, shares, and shares with the baseline’s', () => {
  const rules = summarize(verdicts(100, 5), verdicts(100, 3))
  const met = (text: string) => readConditions(text).map((one) => check(one, rules))
  assert.deepEqual(met('duplicate_write>4'), ['met'])
  assert.deepEqual(met('duplicate_write>5'), ['not_met'])
  assert.deepEqual(met('duplicate_write>=5, duplicate_write > 4.9 %'), ['met', 'met'])
  assert.deepEqual(met('duplicate_write>5%,duplicate_write>=5%'), ['not_met', 'met'])
  assert.deepEqual(met('duplicate_write>baseline'), ['met'])
  assert.deepEqual(met('duplicate_write>baseline+2%'), ['not_met'])
  assert.deepEqual(met('duplicate_write>=baseline + 2%,duplicate_write>baseline+1.9%'), ['met', 'met'])
  assert.deepEqual(met('false_success>0,runaway>baseline'), ['unknown', 'not_met'])
  const alone = summarize(verdicts(100, 5))
  assert.equal(check(readConditions('runaway>baseline')[0]!, alone), 'unknown')
})

test('a condition that cannot be read is refused with the reason', () => {
  const refused = (text: string, message: RegExp) =>
    assert.throws(
      () => readConditions(text),
      (error) => error instanceof ConditionError && message.test(error.message),
      text,
    )
  refused('', /^expected conditions such as duplicate_write>0/)
  refused('runaway', /not "runaway"$/)
  refused('runaway>0,', /not ""$/)
  refused('runaway<1', /^expected conditions/)
  refused('runaway=1', /^expected conditions/)
  refused('runawy>0', /^there is no rule "runawy"; did you mean runaway\?; rules: runaway, /)
  refused(
    'runaway>-1',
    /^expected a number of tasks, a share such as 5%, or baseline\+2% as the bound, not "-1"/,
  )
  refused('runaway>1.5', /not "1\.5"/)
  refused('runaway>baseline-2%', /not "baseline-2%"/)
  refused('runaway>baseline+2', /not "baseline\+2"/)
  refused('runaway>101%', /^expected at most 100%, not 101% in "runaway>101%"/)
  refused(Array(51).fill('runaway>0').join(','), /^expected at most 50 conditions, not 51/)
})
