import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { byDefault, none } from '../sim/policy-choices.ts'
import { sweep, type SweepOptions } from '../sim/sweep.ts'
import { printingOf, withOutputs } from './docs/outputs.ts'
import { commands } from './index.ts'
import { standalone } from './simulated/pictures.ts'
import { radiusCurves, radiusMap } from './simulated/sweep-page.ts'

// Run by itself, in the root of the repository: has the page about blast radius show what its commands print, and draws its
// pictures. With an argument, it writes into that folder instead.

/** What `breakwater sweep` measures unless it is told otherwise. */
const options: SweepOptions = {
  rates: [0.005, 0.01, 0.02, 0.05, 0.1],
  fanOuts: [2, 4, 8, 16],
  tasks: 200,
  seeds: 20,
  seed: 1,
  choices: [none, byDefault],
}

/** The pictures of the page about blast radius, by their paths under `docs`. */
async function blastRadiusPictures(): Promise<Readonly<Record<string, string>>> {
  const cells = await sweep(options)
  return {
    'blast-radius/none.svg': standalone(radiusMap(cells, none.name, options)),
    'blast-radius/default.svg': standalone(radiusMap(cells, byDefault.name, options)),
    'blast-radius/curves.svg': standalone(radiusCurves(cells, none.name, options)),
  }
}

const [, , docs = 'docs'] = process.argv
const page = 'blast-radius.md'
const made = {
  ...(await blastRadiusPictures()),
  [page]: await withOutputs(readFileSync(`docs/${page}`, 'utf8'), printingOf(commands)),
}
mkdirSync(`${docs}/blast-radius`, { recursive: true })
for (const [path, text] of Object.entries(made)) writeFileSync(`${docs}/${path}`, text)
