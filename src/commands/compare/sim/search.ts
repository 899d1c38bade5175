import { readdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseClaim } from '../../../claims/claim.ts'
import { subjects } from '../../../claims/subjects.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { configHash } from '../../../config/hash.ts'
import { systemClock } from '../../../mesh/clock.ts'
import type { PolicyChoice } from '../../../sim/policy-choices.ts'
import { sceneOf } from '../../../sim/scene.ts'
import {
  CheckpointError,
  readCheckpoint,
  type SearchOptions,
  writeCheckpoint,
} from '../../../sim/search/checkpoint.ts'
import { BaselineViolated, search as searchPlans, type SearchParts } from '../../../sim/search/search.ts'
import { OUTAGE, type SliName, sliNames, type Slo } from '../../../sim/search/slo.ts'
import { makeFolder } from '../../../units/folder.ts'
import {
  Misuse,
  optionLines,
  type Output,
  runCommand,
  seeded,
  UnusableInput,
  type Values,
} from '../../shared/arguments.ts'
import { showProgress } from '../../shared/progress.ts'
import { choiceOf, policyOptions } from './inputs.ts'
import { inJson, inText, planFile } from '../../../sim/search/report.ts'

/** Tools of the agents: three servers with three tools each, all read-only. */
const TOOLS = [
  'search/query',
  'search/suggest',
  'search/fetch',
  'files/read',
  'files/list',
  'files/stat',
  'metrics/query',
  'metrics/range',
  'metrics/labels',
]

const options = {
  slo: {
    kind: 'text',
    value: 'SLI=VALUE',
    default: 'tcsr=0.999',
    about: `the objective: ${sliNames.join(', ')}`,
  },
  ...policyOptions,
  tools: {
    kind: 'text',
    value: 'LIST',
    about: 'tools called by agents, as server/tool with commas (default: 3 tools on each of 3 servers)',
  },
  tasks: { kind: 'integer', min: 1, max: 100_000, value: 'N', default: '250', about: 'tasks per run' },
  'fan-out': {
    kind: 'integer',
    min: 1,
    max: 1_000,
    value: 'N',
    default: '8',
    about: 'tool calls per task',
  },
  concurrency: { kind: 'integer', min: 1, max: 512, value: 'N', default: '8', about: 'tasks at a time' },
  runs: {
    kind: 'integer',
    // Minimum of 2, because a standard error needs two runs.
    min: 2,
    max: 100,
    value: 'N',
    default: '5',
    about: 'runs per plan, each with its own draws',
  },
  population: {
    kind: 'integer',
    // Minimum of 4, because a child has two parents and the best individuals are kept.
    min: 4,
    max: 1_000,
    value: 'N',
    default: '20',
    about: 'plans per generation',
  },
  generations: { kind: 'integer', min: 1, max: 1_000, value: 'N', default: '8', about: 'generations' },
  findings: {
    kind: 'integer',
    min: 1,
    max: 100,
    value: 'N',
    default: '5',
    about: 'most plans to report',
  },
  seed: seeded('the same seed gives the same findings'),
  checkpoint: {
    kind: 'text',
    value: 'FILE',
    about: 'file to save the search at the beginning and after each generation',
  },
  resume: {
    kind: 'text',
    value: 'FILE',
    about: 'continues from a checkpoint, and saves there without --checkpoint',
  },
  out: {
    kind: 'text',
    value: 'DIR',
    about:
      'folder for each plan as finding-N.yaml, a loadable block chaos; replaces findings of an earlier run',
  },
  json: { kind: 'flag', about: 'prints JSON' },
} as const

function sliLine(name: SliName): string {
  const { unit, better, about } = subjects[name]
  const most = better === 'higher' ? 'least' : unit === 'ms' ? 'most, in ms' : 'most'
  return `  ${name.padEnd(13)} at ${most}: ${about}`
}

const usage = `breakwater search [--slo SLI=VALUE] [--policies FILE [--set NAME]]

  Searches for faults that slightly violate an SLO: 99.85 % instead of 99.9 %, but no outage. A genetic search breeds
  plans of 1 to 4 faults, against simulated servers behind the real policies, on virtual time. Each plan found is shrunk
  to the smallest form in violation, confirmed and measured in other runs, and listed with all single changes of
  policies to contain it.

${optionLines(options)}

${sliNames.map(sliLine).join('\n')}

  Exit codes: 0, with or without findings; 1 when it could not run, or the SLO is violated without faults; 2 for wrong
  arguments.`

export function search(args: readonly string[], out: Output, env: Env): Promise<number> {
  const line = { usage, options, positionals: [] }
  return runCommand(args, line, out, (values) => run(values, out, env))
}

type Given = Values<typeof options>

async function run(given: Given, out: Output, env: Env): Promise<number> {
  const slo = sloOf(given.slo)
  const tools = toolsOf(given.tools)
  checkFailures(given, slo)
  let words = ''
  let endProgress = () => undefined as void
  try {
    const choice = await choiceOf(given, env)
    const searchOptions = searchOptionsOf(given, tools, choice)
    const path = given.checkpoint ?? given.resume
    const from = given.resume === undefined ? undefined : await readCheckpoint(given.resume, searchOptions)
    if (from !== undefined && from.state.generation > given.generations)
      throw new Misuse(
        `${given.resume} has ${from.state.generation} generations already: --generations must be at least that`,
      )
    // The folder is checked before the search, which takes about a minute.
    if (given.out !== undefined) makeOut(given.out)
    endProgress = showProgress(out, systemClock, () => words)
    const parts: SearchParts = {
      ...given,
      setting: {
        slo,
        scene: sceneOf(given['fan-out'], tools),
        choice,
        tasks: given.tasks,
        concurrency: given.concurrency,
      },
      tools,
      most: given.findings,
      ...(from !== undefined && { from }),
      ...(path !== undefined && {
        onGeneration: (standstill) => writeCheckpoint(path, { options: searchOptions, ...standstill }),
      }),
      onStep: (step) => (words = step),
    }
    const result = await searchPlans(parts)
    endProgress()
    out.stdout((given.json ? inJson(result, slo, searchOptions) : inText(result, slo)).trimEnd())
    if (given.out !== undefined) {
      await removeFindings(given.out)
      for (const [at, finding] of result.findings.entries()) {
        const file = join(given.out, `finding-${at + 1}.yaml`)
        await writeFile(file, planFile(finding, result, { slo, options: searchOptions, seed: given.seed }))
        out.stderr(`breakwater: wrote ${file}`)
      }
    }
    return 0
  } catch (error) {
    if (!(error instanceof CheckpointError || error instanceof BaselineViolated)) throw error
    throw new UnusableInput(error.message)
  } finally {
    endProgress()
  }
}

function makeOut(folder: string): void {
  try {
    makeFolder(folder)
  } catch (error) {
    throw new UnusableInput(`--out: ${(error as Error).message}`)
  }
}

/** Removes the files of an earlier run, because a reader could take them for findings of this run. */
async function removeFindings(folder: string): Promise<void> {
  for (const name of await readdir(folder)) if (/^finding-\d+\.yaml$/.test(name)) await rm(join(folder, name))
}

function sloOf(text: string): Slo {
  const claim = parseClaim(text, sliNames)
  if ('problem' in claim) throw new Misuse(`--slo: ${claim.problem}`)
  const { subject: sli, operator, value: target } = claim
  const isRatio = subjects[sli].unit === 'share'
  if (operator === '=' && target > 0 && (!isRatio || target < 1)) return { sli, target }
  const expected = isRatio ? 'a ratio above 0 and below 1, such as' : 'a duration above 0, such as'
  throw new Misuse(`--slo: expected ${expected} ${sli}=${isRatio ? 0.999 : '300ms'}, not "${text}"`)
}

function toolsOf(text: string | undefined): readonly string[] {
  if (text === undefined) return TOOLS
  const tools = text.split(',').map((tool) => tool.trim())
  const wrong = tools.find((tool) => !/^[\w-]{1,40}\/[\w.-]{1,64}$/.test(tool))
  if (wrong !== undefined)
    throw new Misuse(`--tools: expected names as server/tool with commas between them, not "${wrong}"`)
  if (new Set(tools).size < tools.length) throw new Misuse('--tools: each name once')
  return tools
}

/**
 * Minimum number of failures that an objective must allow in all runs of a plan. With fewer, a single failure would
 * count as an outage.
 */
const FEWEST_FAILURES = 5

function checkFailures(given: Given, { sli, target }: Slo): void {
  const { better, unit } = subjects[sli]
  if (unit === 'ms') return
  const whole = given.tasks * given.runs * (sli === 'blast_radius' ? 1 : given['fan-out'])
  const allowed = whole * (better === 'higher' ? 1 - target : target)
  if (allowed < FEWEST_FAILURES)
    throw new Misuse(
      `${sli}=${target} allows ${allowed.toFixed(1)} failures in the ${given.runs} runs of a plan: expected ${FEWEST_FAILURES} or more, because ${OUTAGE + 1} times the allowance is an outage; raise --tasks`,
    )
}

/** Returns the options that affect the findings of a search, without options for its length and its output. */
function searchOptionsOf(
  given: Given,
  tools: readonly string[],
  { policies, set }: PolicyChoice,
): SearchOptions {
  const { slo, tasks, 'fan-out': fanOut, concurrency, runs, population, seed } = given
  return {
    slo,
    policies: configHash(policies),
    set: set ?? 'none',
    tools: tools.join(','),
    tasks,
    'fan-out': fanOut,
    concurrency,
    runs,
    population,
    seed,
  }
}
