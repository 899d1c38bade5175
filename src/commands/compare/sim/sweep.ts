import type { Env } from '../../../config/files/interpolate.ts'
import { systemClock } from '../../../mesh/clock.ts'
import { byDefault, inForce, none, without } from '../../../sim/policy-choices.ts'
import { sweep as measure, type SweepCell, type SweepOptions } from '../../../sim/sweep.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../../shared/arguments.ts'
import { showProgress } from '../../shared/progress.ts'
import { choiceOf, policyOptions } from './inputs.ts'
import { cellOf, percentage, sweepPage } from '../../../sim/sweep-page.ts'
import { numbered } from '../../../units/numbered.ts'

const formats = ['table', 'json', 'csv', 'html'] as const

const options = {
  rates: {
    kind: 'text',
    value: 'LIST',
    default: '0.005,0.01,0.02,0.05,0.1',
    about: 'shares of failing attempts',
  },
  'fan-outs': { kind: 'text', value: 'LIST', default: '2,4,8,16', about: 'tool calls per task' },
  tasks: { kind: 'integer', min: 1, max: 100_000, value: 'N', default: '200', about: 'tasks per run' },
  seeds: { kind: 'integer', min: 1, max: 1_000, value: 'N', default: '20', about: 'runs per cell' },
  seed: { kind: 'integer', value: 'SEED', default: '1', about: 'the first seed; the other seeds follow' },
  ...policyOptions,
  only: {
    kind: 'text',
    value: 'LIST',
    about: 'only these of the policies: none, default, "without retry" and so on',
  },
  format: {
    kind: 'choice',
    of: formats,
    value: 'FORMAT',
    default: 'table',
    about: 'table, json, csv or html',
  },
  json: { kind: 'flag', about: 'the same as --format json' },
} as const

const usage = `breakwater sweep

  Simulates an agent's tasks at several error rates and numbers of calls a task, and compares the share of tasks with a
  failure to 1 - (1 - rate)^calls: without any policy, with the default policies, and without each default policy. Needs
  no server and no network; the same arguments print the same everywhere.

${optionLines(options)}

  Exit codes: 0; 1 when it could not run; 2 for wrong arguments.`

/** Maximum number of calls in all runs together: more calls would take over an hour. */
const MOST_CALLS = 500_000_000

export function sweep(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async (values) => {
    const asked = await askedFor(values, env)
    const total = asked.rates.length * asked.fanOuts.length * asked.choices.length
    let done = 0
    const endProgress = showProgress(out, systemClock, () => `${done} of ${total} cells`)
    const cells = await measure(asked, () => done++).finally(endProgress)
    for (const line of written(cells, asked, values.json ? 'json' : values.format)) out.stdout(line)
    return 0
  })
}

async function askedFor(values: Values<typeof options>, env: Env): Promise<SweepOptions> {
  const { tasks, seeds, seed } = values
  const rates = numbersOf('rates', values.rates, (rate) => rate <= 1, 'ratios from 0 to 1')
  const isCount = (count: number) => Number.isInteger(count) && count >= 1 && count <= 1_000
  const fanOuts = numbersOf('fan-outs', values['fan-outs'], isCount, 'whole numbers from 1 to 1000')
  const chosen = await choiceOf(values, env)
  // Variants without one policy exist only for the default policies; users write variants of their own policies.
  const all = [none, chosen, ...(chosen === byDefault ? inForce.map(without) : [])]
  const wanted = values.only?.split(',').map((name) => name.trim())
  const strange = wanted?.find((name) => !all.some((choice) => choice.name === name))
  if (strange !== undefined)
    throw new Misuse(`--only: there is no "${strange}"; there are ${all.map(({ name }) => name).join(', ')}`)
  const choices = all.filter(({ name }) => wanted?.includes(name) !== false)
  const calls = tasks * seeds * rates.length * choices.length * fanOuts.reduce((sum, count) => sum + count, 0)
  if (calls > MOST_CALLS)
    throw new UnusableInput(`${calls} calls are too many: a sweep simulates at most ${MOST_CALLS}`)
  return { rates, fanOuts, tasks, seeds, seed, choices }
}

function numbersOf(name: string, text: string, holds: (value: number) => boolean, what: string): number[] {
  const parts = text.split(',').map((part) => part.trim())
  if (parts.every((part) => /^\d+(\.\d+)?$/.test(part) && holds(Number(part)))) return parts.map(Number)
  throw new Misuse(`--${name} must be ${what} with commas between them, not "${text}"`)
}

function* written(cells: readonly SweepCell[], options: SweepOptions, format: string): Generator<string> {
  switch (format) {
    case 'json':
      yield JSON.stringify({ cells }, undefined, 2)
      return
    case 'csv':
      yield 'rate,fan_out,policies,predicted,measured,sd'
      for (const { rate, fanOut, policies, predicted, measured, sd } of cells)
        yield [rate, fanOut, policies, predicted, measured, sd].join(',')
      return
    case 'html':
      yield sweepPage(cells, options)
      return
    default:
      yield* tables(cells, options)
  }
}

/**
 * Yields a table for the prediction and a table for each policy choice, with a line per rate and a column per fan-out.
 */
export function* tables(cells: readonly SweepCell[], options: SweepOptions): Generator<string> {
  const { rates, fanOuts, tasks, seeds, choices } = options
  yield `share of ${numbered(tasks, 'task')} with a failure, by errors (lines) and calls a task (columns); mean of ${numbered(seeds, 'seed')}, ± sd where they differ`
  const table = (show: (cell: SweepCell) => string, policies: string): string[] => [
    lineOf('', fanOuts.map(String)),
    ...rates.map((rate) =>
      lineOf(
        percentage(rate),
        fanOuts.map((fanOut) => show(cellOf(cells, policies, rate, fanOut))),
      ),
    ),
  ]
  yield '\npredicted: 1 - (1 - rate)^calls'
  yield* table(({ predicted }) => predicted.toFixed(3), choices[0]!.name)
  const measured = ({ measured: mean, sd }: SweepCell) =>
    sd === null || sd === 0 ? mean.toFixed(3) : `${mean.toFixed(3)} ± ${sd.toFixed(3)}`
  const told = new Map<string, string[]>()
  for (const { name } of choices) {
    const text = table(measured, name).join('\n')
    told.set(text, [...(told.get(text) ?? []), name])
  }
  // Policies with equal results share a table.
  for (const [text, names] of told) {
    yield `\n${names.join(', ')}`
    yield text
  }
}

const WIDTH = 15

const lineOf = (name: string, values: readonly string[]): string =>
  `${name.padEnd(8)}${values.map((value) => value.padStart(WIDTH)).join('')}`
