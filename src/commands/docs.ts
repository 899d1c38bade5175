import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { faults } from '../chaos/faults/index.ts'
import { policies } from '../policies/index.ts'
import { faultPages } from './docs/faults.ts'
import { policyPages } from './docs/policies.ts'

// Run by itself, in the root of the repository: writes the pages of docs that follow from the code, and removes those of
// policies and faults that there are no more.
for (const folder of ['docs/faults', 'docs/policies']) {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
}
for (const [path, text] of Object.entries({ ...faultPages(faults), ...policyPages(policies, faults) }))
  writeFileSync(`docs/${path}`, text)
