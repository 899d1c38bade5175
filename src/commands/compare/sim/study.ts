import type { Env } from '../../../config/files/interpolate.ts'
import { keepAlive, systemClock } from '../../../mesh/clock.ts'
import { studies } from '../../../sim/studies/index.ts'
import { suggest } from '../../../units/suggest.ts'
import { Misuse, optionLines, type Output, runCommand } from '../../shared/arguments.ts'
import { showProgress } from '../../shared/progress.ts'
import { csvOf, textOf, type Told } from '../../../sim/studies/text.ts'
import { htmlOf } from '../../../sim/studies/page.ts'

const formats = ['table', 'json', 'csv', 'html'] as const
type Format = (typeof formats)[number]

const options = {
  seeds: {
    kind: 'integer',
    min: 1,
    max: 10_000,
    value: 'N',
    about: 'runs per cell (default: as above)',
  },
  seed: {
    kind: 'integer',
    max: Number.MAX_SAFE_INTEGER - 10_000,
    value: 'SEED',
    default: '1',
    about: 'seed of the first run; each further run has the next number',
  },
  format: {
    kind: 'choice',
    of: formats,
    value: 'FORMAT',
    default: 'table',
    about: 'table, json, csv (all tables and lines in a file), or html (a page with charts)',
  },
  brief: { kind: 'flag', about: 'table format without lines over time' },
  json: { kind: 'flag', about: 'the same as --format json' },
} as const

const width = Math.max(...Object.keys(studies).map((name) => name.length))

const usage = `breakwater study NAME

  Answers a question by simulation: the policies and faults of live traffic, on a virtual clock, between models of agents and
  servers. The same seeds give the same bytes on every machine. Uses no network.

${Object.entries(studies)
  .map(([name, { about, seeds }]) => `  ${name.padEnd(width)}  ${about} (seeds: ${seeds})`)
  .join('\n')}

${optionLines(options)}

  Exit codes: 0; 1 when it could not run; 2 for wrong arguments.`

const rendered: Readonly<Record<Format, (told: Told, brief: boolean) => string>> = {
  table: textOf,
  json: (told) => JSON.stringify(told, null, 2),
  csv: csvOf,
  html: htmlOf,
}

export function study(args: readonly string[], out: Output, _env: Env): Promise<number> {
  const line = { usage, options }
  return runCommand(args, line, out, async ({ seed, seeds, format, brief, json }, [name, extra]) => {
    if (name === undefined) throw new Misuse(`NAME is missing; there are ${Object.keys(studies).join(', ')}`)
    if (extra !== undefined) throw new Misuse(`unexpected argument "${extra}"`)
    const chosen = Object.hasOwn(studies, name) ? studies[name] : undefined
    if (chosen === undefined) throw new Misuse(unknownStudy(name))
    let done = 0
    const endProgress = showProgress(out, systemClock, () => `${name}: ${Math.floor(done * 100)} %`)
    const letEnd = keepAlive()
    try {
      const findings = await chosen.run({
        seed,
        seeds: seeds ?? chosen.seeds,
        onProgress: (share) => (done = share),
      })
      const told = { name, about: chosen.about, seed, seeds: seeds ?? chosen.seeds, ...findings }
      out.stdout(rendered[json ? 'json' : (format as Format)](told, brief).trimEnd())
      return 0
    } finally {
      letEnd()
      endProgress()
    }
  })
}

function unknownStudy(name: string): string {
  const meant = suggest(name, Object.keys(studies))
  return `unknown study "${name}"; ${meant === undefined ? `there are ${Object.keys(studies).join(', ')}` : `did you mean ${meant}?`}`
}
