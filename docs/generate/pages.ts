import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { faults } from '../../src/chaos/faults/index.ts'
import { policies } from '../../src/policies/index.ts'
import { commands } from '../../src/commands/index.ts'
import { commandPages } from './commands.ts'
import { faultPages } from './faults.ts'
import { policyPages } from './policies.ts'

// Run by itself, in the root of the repository: writes the pages of docs that follow from the code, and removes those of
// policies and faults that there are no more.
for (const folder of ['docs/faults', 'docs/policies']) {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
}
const pages = {
  ...faultPages(faults),
  ...policyPages(policies, faults),
  ...(await commandPages(commands)),
}
for (const [path, text] of Object.entries(pages)) writeFileSync(`docs/${path}`, text)
