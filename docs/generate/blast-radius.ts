import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { byDefault, none } from '../../src/sim/policy-choices.ts'
import { sweep, type SweepCell, type SweepOptions } from '../../src/sim/sweep.ts'
import { printingOf, withOutputs } from './outputs.ts'
import { commands } from '../../src/commands/index.ts'
import { standalone } from '../../src/sim/pictures.ts'
import { radiusCurves, radiusMap } from '../../src/sim/sweep-page.ts'
import { tables } from '../../src/commands/compare/sim/sweep.ts'

// Run alone, in the root of the repository: updates the command output in the page about blast radius, and draws its
// pictures. With an argument, writes into that folder instead.

/** Options of the sweep shown in the page. */
const options: SweepOptions = {
  rates: [0.005, 0.01, 0.02, 0.05, 0.1],
  fanOuts: [2, 4, 8, 16],
  tasks: 200,
  seeds: 5,
  seed: 1,
  choices: [none, byDefault],
}

/** The command with these options. */
const SWEEP = 'sweep --only none,default --seeds 5'

/** Returns the pictures of the page about blast radius, by their paths under `docs`. */
function blastRadiusPictures(cells: readonly SweepCell[]): Readonly<Record<string, string>> {
  return {
    'blast-radius/none.svg': standalone(radiusMap(cells, none.name, options)),
    'blast-radius/default.svg': standalone(radiusMap(cells, byDefault.name, options)),
    'blast-radius/curves.svg': standalone(radiusCurves(cells, none.name, options)),
  }
}

const [, , docs = 'docs'] = process.argv
const page = 'blast-radius.md'
const cells = await sweep(options)
const printed = printingOf(commands)
const made = {
  ...blastRadiusPictures(cells),
  // A sweep is expensive: the table and the pictures share one.
  [page]: await withOutputs(readFileSync(`docs/${page}`, 'utf8'), (args) =>
    args.join(' ') === SWEEP ? Promise.resolve([...tables(cells, options)].join('\n').trim()) : printed(args),
  ),
}
mkdirSync(`${docs}/blast-radius`, { recursive: true })
for (const [path, text] of Object.entries(made)) writeFileSync(`${docs}/${path}`, text)
