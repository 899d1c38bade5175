import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { defaultsStudy } from '../../src/sim/studies/defaults.ts'
import { withOutputs } from './outputs.ts'
import { DEFAULTS, defaultsText, defaultsPictures, SEEDS } from '../../src/sim/defaults-page.ts'

// Run alone, in the root of the repository: updates the command output in the page about the defaults, and draws its
// pictures.

const findings = await defaultsStudy.run({ seed: 1, seeds: SEEDS })
const page = 'docs/defaults.md'
const text = await withOutputs(readFileSync(page, 'utf8'), (args) => {
  if (args.join(' ') !== DEFAULTS) throw new Error(`the page shows ${args.join(' ')}, and not ${DEFAULTS}`)
  return Promise.resolve(defaultsText(findings))
})
mkdirSync('docs/defaults', { recursive: true })
writeFileSync(page, text)
for (const [path, picture] of Object.entries(defaultsPictures(findings)))
  writeFileSync(`docs/${path}`, picture)
