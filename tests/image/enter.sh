# Enters the root of an image as a runtime does: ROOT, how many mounts, OUTSIDE INSIDE of each, and a command.
set -eu
root=$1 mounts=$2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
shift 2
while [ "$mounts" -gt 0 ]; do
    mount --bind "$1" "$root$2"
    mounts=$((mounts - 1))
    shift 2
done
mount -o remount,bind,ro "$root"
exec env -i "$@"
