/* SPDX-License-Identifier: MIT */
'use strict';
const plan=JSON.parse(document.getElementById('data').textContent),names=['world','batch','seq','recompute'];
const gib=b=>(b/1073741824).toFixed(3)+' GiB',at=id=>document.getElementById(id);
function chosen(){return names.map(n=>plan.choices[n][+at(n).value]);}
function show(){
  const want=chosen();
  names.forEach((n,i)=>{const text=n==='recompute'?plan.recompute[want[i]]:String(want[i]);at(n+'-now').textContent=text;at(n).setAttribute('aria-valuetext',text);});
  const p=plan.points.find(q=>q.k.every((v,i)=>v===want[i]));
  const body=at('rows');body.textContent='';
  if(!p||!p.total){at('total').textContent='cannot be planned';at('verdict').textContent='';return;}
  at('total').textContent=gib(p.total);
  const v=at('verdict');v.className='';v.textContent='';
  if(plan.capacity){const left=plan.capacity-p.total;v.className=left<0?'lacks':'fits';v.textContent=left<0?'DOES NOT FIT: '+gib(-left)+' are lacking':'FITS, with '+gib(left)+' left';}
  const lines=plan.categories.map((n,i)=>[n,p.c[i]]).filter(l=>l[1]);
  lines.push(['lower bound (their sum)',p.low],['arena',p.arena],['outside the arena',p.out],['total',p.total]);
  for(const [name,bytes] of lines){const tr=document.createElement('tr');
    for(const text of [name,bytes.toLocaleString('en'),gib(bytes)]){const td=document.createElement('td');td.textContent=text;tr.append(td);}
    const td=document.createElement('td'),bar=document.createElement('span');bar.className='bar';bar.style.width=Math.max(1,120*bytes/p.total).toFixed(1)+'px';td.style.textAlign='left';td.append(bar);tr.append(td);body.append(tr);}
}
names.forEach(n=>at(n).addEventListener('input',show));show();
