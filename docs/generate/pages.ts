import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { faults } from '../../src/chaos/faults/index.ts'
import { policies } from '../../src/policies/index.ts'
import { commands } from '../../src/commands/index.ts'
import { commandPages } from './commands.ts'
import { faultPages } from './faults.ts'
import { policyPages } from './policies.ts'

// Run alone, in the root of the repository: writes the docs pages generated from the code, and removes the pages of
// policies and faults that no longer exist.
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
